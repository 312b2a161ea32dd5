"""The settings of `[collaborate]`: a language model beside a fine-tuned encoder."""

from typing import Literal

from pydantic import Field, model_validator

from electra_cli.settings_base import Count, CountOrZero, Settings, Share

PROMPT_STRATEGIES = (
    "alone",
    "label",
    "probabilities",
    "label+probabilities",
    "examples",
    "balanced-examples",
    "all",
)


class Price(Settings):
    """`[[collaborate.price]]`: what a model costs, in US dollars per million tokens."""

    model: str
    """Name of the model, as in `collaborate.model`."""
    input: float = Field(ge=0)
    """Tokens of prompts."""
    output: float = Field(ge=0)
    """Tokens of answers."""
    training: float = Field(0.0, ge=0)
    """Tokens of fine-tuning, each epoch; 0: not known."""


class Collaborate(Settings):
    """`[collaborate]`: a language model beside a fine-tuned encoder."""

    base_url: str = "https://api.openai.com/v1"
    """Address of an OpenAI-compatible endpoint: https, or http on this machine."""
    model: str = "gpt-4o-mini-2024-07-18"
    """Model that is asked."""
    key_variable: str = Field("OPENAI_API_KEY", pattern=r"^[A-Z][A-Z0-9_]*_API_KEY$")
    """Environment variable that holds the key; its name ends in _API_KEY."""
    strategies: list[str] = Field(default_factory=lambda: ["alone", "label", "cascade"])
    """What the model is told, by strategy; see docs/collaborate.md."""
    inside: str = "alone"
    """The strategy that a cascade asks with."""
    threshold: Share = 0.0
    """A cascade asks below this probability of the encoder; 0: by `budget` or `quantile`."""
    quantile: Share = 0.2
    """The threshold is this quantile of the encoder's top probability on validation data."""
    budget: CountOrZero = 0
    """The threshold is the largest that asks at most so many rows; 0: by `quantile`."""
    num_examples: Count = 5
    """Examples in a prompt of `examples` and `all`."""
    examples_per_class: Count = 2
    """Examples of each class in a prompt of `balanced-examples`."""
    noun: str = Field("review", pattern=r"^[A-Za-z][A-Za-z -]{0,39}$")
    """What a text is called in the prompts."""
    quality: str = Field("sentiment", pattern=r"^[A-Za-z][A-Za-z -]{0,39}$")
    """What is classified, in the prompts."""
    prompt: Literal["separate", "paper"] = "separate"
    """Texts as JSON in a user message of their own, or all in one message as in the paper."""
    constrain: Literal["auto", "schema", "rules"] = "auto"
    """Constrain answers by a JSON schema, or read them by exact rules; auto: schema where it is supported."""
    temperature: float = Field(0.0, ge=0, le=2)
    """Sampling temperature of the model."""
    max_tokens: Count = 64
    """Longest answer in tokens, the reasoning of models that reason included."""
    retries: CountOrZero = 2
    """Further requests after an answer outside the classes."""
    transport_retries: CountOrZero = 4
    """Further requests after a rate limit, a server error, a time-out or a cut connection."""
    backoff_seconds: float = Field(1.0, ge=0, le=60)
    """Wait before the first of these; doubled each time, at most a minute."""
    timeout_seconds: float = Field(60.0, gt=0)
    """Longest wait for an answer."""
    concurrency: int = Field(4, ge=1, le=64)
    """Requests under way at the same time."""
    tokenizer: str = ""
    """A tokenizer.json that counts the model's tokens; without it they are estimated."""
    resamples: Count = 2000
    """Bootstrap samples of the intervals."""
    price: list[Price] = Field(default_factory=list)
    """What models cost."""

    @model_validator(mode="after")
    def _strategies_exist(self) -> "Collaborate":
        known = ", ".join(PROMPT_STRATEGIES)
        if self.inside not in PROMPT_STRATEGIES:
            raise ValueError(f"inside = {self.inside!r}: a cascade asks with one of {known}")
        if not self.strategies:
            raise ValueError(f"strategies is empty; there are {known} and cascade")
        for name in self.strategies:
            if name not in (*PROMPT_STRATEGIES, "cascade"):
                raise ValueError(f"there is no strategy {name!r}; there are {known} and cascade")
        return self

    def price_of(self, model: str) -> Price | None:
        """What a model costs, where the project file says so."""
        return next((price for price in self.price if price.model == model), None)
