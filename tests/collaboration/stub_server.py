"""A small OpenAI-compatible server that misbehaves as told, and remembers every request."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Call:
    """A received request."""

    body: dict[str, object]
    headers: dict[str, str]

    @property
    def user_text(self) -> str:
        return self.body["messages"][-1]["content"]  # type: ignore[index]

    @property
    def is_constrained(self) -> bool:
        return "response_format" in self.body


@dataclass
class Reply:
    """What the server answers."""

    text: str | None = None
    status: int = 200
    raw: bytes | None = None
    """In place of a chat completion."""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """Close the connection in the middle of the body."""
    delay: float = 0.0
    usage: dict[str, object] | None = field(
        default_factory=lambda: {"prompt_tokens": 50, "completion_tokens": 5}
    )


Behaviour = Callable[[Call], Reply]


class Stub:
    """The running server."""

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.calls: list[Call] = []
        self.released = threading.Event()
        self._lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                call = Call(json.loads(self.rfile.read(length)), dict(self.headers.items()))
                with stub._lock:
                    stub.calls.append(call)
                stub._respond(self, stub.behave(call))

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def _respond(self, handler: BaseHTTPRequestHandler, reply: Reply) -> None:
        if reply.delay:
            # Ends with the test, so that no thread outlives it.
            self.released.wait(reply.delay)
        content = reply.raw
        if content is None:
            message = {"role": "assistant", "content": reply.text}
            body: dict[str, object] = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
            if reply.usage is not None:
                body["usage"] = reply.usage
            content = json.dumps(body).encode()
        try:
            handler.send_response(reply.status)
            for name, value in {"content-type": "application/json", **reply.headers}.items():
                handler.send_header(name, value)
            handler.send_header("content-length", str(len(content) + (100 if reply.cut else 0)))
            handler.end_headers()
            handler.wfile.write(content)
        except OSError:
            pass  # the client has hung up
        handler.close_connection = True

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def serving(behave: Behaviour) -> Iterator[Stub]:
    stub = Stub(behave)
    try:
        yield stub
    finally:
        stub.close()


def in_schema(label: str) -> Reply:
    """A well-behaved answer."""
    return Reply(json.dumps({"classification": label}))
