"""The settings of a project file: one class a table, one docstring line under each setting.

The defaults are those of `electra-small` (Clark et al. 2020, Table 6, and the official code's configuration).
Strict: no unknown key, no number given as text, no nan or infinity.
"""

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from electra_cli.settings_base import Count as Count
from electra_cli.settings_base import CountOrZero as CountOrZero
from electra_cli.settings_base import Settings as Settings
from electra_cli.settings_base import Share as Share
from electra_cli.settings_collaborate import Collaborate as Collaborate


class ProjectTable(Settings):
    """`[project]`: what this is."""

    name: str = Field("my-encoder", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Short name; becomes part of the run directory's name and of the model card."""
    recipe: str = "electra-small"
    """The ready-made pipeline whose settings this file changes."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Every random choice follows from it."""
    language: list[str] = Field(default_factory=lambda: ["en"])
    """ISO 639 codes, for the model card."""
    license: str = ""
    """Licence of the exported model, for the model card."""


class CorpusSource(Settings):
    """`[[corpus.source]]`: one of several weighted sources."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name of the source in the manifest."""
    files: list[str]
    """Files and folders of this source."""
    weight: float = Field(1.0, gt=0)
    """Share of the samples relative to the other sources."""


class Corpus(Settings):
    """`[corpus]`: the text."""

    files: list[str] = Field(default_factory=lambda: ["corpus/"])
    """Files, folders, or `hf://owner/name`."""
    document: Literal["blank-line", "line", "file"] = "blank-line"
    """What ends a document in plain text."""
    text_column: str = "text"
    """Field that holds the text in .jsonl, .parquet and .arrow files."""
    encoding_errors: Literal["strict", "replace"] = "strict"
    """Bytes that are not UTF-8: stop and name the place, or replace by U+FFFD and count."""
    drop_duplicates: bool = True
    """Keep one of several parts with exactly the same text."""
    heldout_fraction: float = Field(0.005, ge=0, le=0.05)
    """Share of the parts kept out of training; at least one part."""
    shard_bytes: int = Field(268_435_456, ge=4096)
    """Size of a shard file, about."""
    processes: CountOrZero = 0
    """Processes of shard-corpus; 0: one a core."""
    engine: Literal["local", "ray"] = "local"
    """What runs the map and reduce functions of shard-corpus."""
    source_exponent: float = Field(0.0, ge=0, le=1)
    """Share of a source: weight · size to this power; 0: the weight alone, 1: as much as there is."""
    source: list[CorpusSource] = Field(default_factory=list)
    """Several weighted sources, in place of `files`."""


class Vocab(Settings):
    """`[vocab]`: the vocabulary."""

    kind: Literal["wordpiece", "unigram", "bpe"] = "wordpiece"
    """Algorithm that learns the pieces."""
    size: int = Field(30_522, ge=32, le=2**24)
    """Number of pieces, the five special ones included."""
    path: str = ""
    """An own vocabulary (vocab.txt or tokenizer.json) in place of a learned one."""
    lowercase: bool = True
    """Fold upper case."""
    strip_accents: bool = True
    """Remove combining accents."""
    unicode_norm: Literal["NFC", "NFKC", "none"] = "NFC"
    """Unicode normal form that text is brought to first."""
    min_frequency: Count = 2
    """Pairs seen less often are not merged."""
    limit_alphabet: Count = 1000
    """Single characters kept, the most frequent first."""
    sample_bytes: int = Field(2_000_000_000, ge=1024)
    """Text read for learning, about; documents are sampled by a hash of their text."""
    max_input_chars: Count = 100
    """A longer word becomes [UNK]."""


class Rows(Settings):
    """`[rows]`: how the token stream is cut."""

    sequence_length: int = Field(128, ge=8, le=65_536)
    """Tokens in a row, the special ones included."""
    attend_across_documents: bool = False
    """Let the pieces of a row see each other (RoBERTa's way)."""
    segment_pairs: bool = True
    """Split the longest piece of a row into two segments, as BERT and ELECTRA do."""


BackboneName = Literal["electra", "deberta", "modern"]
Size = Literal["toy", "tiny", "xsmall", "small", "base", "large"]


class Model(Settings):
    """`[model]`: the discriminator, or the only network. 0 in an override takes the size's value."""

    backbone: BackboneName = "electra"
    """Family of the encoder."""
    size: Size = "small"
    """Named row of the size table; the settings below override single values."""
    num_layers: CountOrZero = 0
    """Transformer layers."""
    hidden_size: CountOrZero = 0
    """Width."""
    feed_forward_size: CountOrZero = 0
    """Inner width of the feed-forward layers."""
    num_heads: CountOrZero = 0
    """Attention heads."""
    embedding_size: CountOrZero = 0
    """Width of the embedding tables."""
    local_window: int = Field(128, ge=2)
    """Tokens that a token of a local layer sees, half to each side; for backbone "modern"."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout of hidden states."""
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout of attention weights."""
    relative_buckets: CountOrZero = 0
    """Buckets of COCO-LM's bias on attention by relative place, backbone electra only; such a model cannot
    be exported. 0: no bias."""
    relative_distance: Count = 128
    """Distances from here on share a bucket of that bias."""
    layer_norm_eps: float = Field(1e-12, gt=0)
    """ε of LayerNorm."""
    init_std: float = Field(0.02, gt=0)
    """Standard deviation of the truncated normal initial weights."""


class Generator(Settings):
    """`[generator]`: the small masked language model."""

    width: CountOrZero = 64
    """Hidden size; 0: the discriminator's. Without a value of one's own 64, or 256 for base and large."""
    depth_fraction: float = Field(1.0, gt=0, le=1)
    """Layers relative to the discriminator's."""
    sharing: Literal["none", "tied", "all", "gradient-disentangled"] = "tied"
    """What the two networks share: nothing, the embeddings, or the whole encoder of one size."""


class Masking(Settings):
    """`[masking]`: which tokens are hidden."""

    fraction: float = Field(0.15, gt=0, lt=1)
    """Share of the real tokens of a row that are chosen; .25 for the size large."""
    keep_fraction: Share = 0.15
    """Share of the chosen tokens that stay visible; the others become [MASK], none a random token."""
    whole_word: bool = False
    """Choose whole words instead of pieces."""


class ObjectiveTable(Settings):
    """`[objective]`: the pre-training system; its own keys are checked by `OBJECTIVE_SETTINGS[use]`."""

    model_config = ConfigDict(
        strict=True, extra="allow", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    use: str = "electra"
    """A built-in system, or `file.py:Class`."""


class Optimizer(Settings):
    """`[optimizer]`: Adam with decoupled weight decay."""

    learning_rate: float = Field(5e-4, ge=0)
    """Peak of the schedule."""
    betas: list[float] = Field(default_factory=lambda: [0.9, 0.999], min_length=2, max_length=2)
    """Decay of the two moving averages."""
    eps: float = Field(1e-6, gt=0)
    """Added to the root of the second moment."""
    weight_decay: float = Field(0.01, ge=0)
    """Decoupled, times the learning rate; not on biases and LayerNorm."""
    bias_correction: bool = False
    """Adam's correction of the first steps; the official code has none."""
    clip_norm: float = Field(1.0, ge=0)
    """Largest global gradient norm; 0 switches clipping off."""

    @model_validator(mode="after")
    def _betas_in_range(self) -> "Optimizer":
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas = {self.betas}: both must be at least 0 and below 1")
        return self


class Schedule(Settings):
    """`[schedule]`: the learning rate over the steps."""

    warmup_steps: CountOrZero = 10_000
    """Steps of linear rise."""
    decay: Literal["linear", "constant", "cosine"] = "linear"
    """Shape after the rise, down to 0 at the last step."""
    warmup_multiplies_decay: bool = True
    """The official way: rise and decay overlap from step 0; false: warm up first, then decay."""


class Pretrain(Settings):
    """`[pretrain]`: the run."""

    steps: Count = 1_000_000
    """Optimizer steps."""
    batch_size: Count = 128
    """Rows in an optimizer step, over all processes."""
    micro_batch_size: CountOrZero = 0
    """Rows in a forward pass; 0: chosen to fit the memory."""
    init_from: str = ""
    """A run, an export or a Hugging Face folder whose weights to start from."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    """Arithmetic of the matrix products."""
    sampler: Literal["auto", "reference", "cpu", "native", "triton"] = "auto"
    """Implementation of the masked-softmax sampling kernel."""
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile."""
    activation_checkpointing: bool = False
    """Keep only what goes into a layer, compute the rest again on the way back: less memory, more time."""
    shard_parameters: bool = False
    """Spread parameters over processes (FSDP2)."""
    log_every: Count = 100
    """Steps between two lines of metrics.jsonl."""
    heldout_every: Count = 2000
    """Steps between two measurements on held-out rows."""
    heldout_rows: Count = 1024
    """Held-out rows measured, at most."""
    save_every: Count = 1000
    """Steps between two checkpoints."""
    keep_checkpoints: int = Field(5, ge=2)
    """Newest checkpoints kept."""

    @model_validator(mode="after")
    def _micro_batches_fill_the_batch(self) -> "Pretrain":
        if self.micro_batch_size and self.batch_size % self.micro_batch_size:
            raise ValueError(
                f"batch_size = {self.batch_size} is no multiple of micro_batch_size = {self.micro_batch_size}"
            )
        return self


class OwnTask(Settings):
    """`[[evaluate.task]]`: a task of one's own."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name in --task and in the results."""
    train: str
    """Training file (.tsv, .csv, .jsonl, .parquet)."""
    dev: str
    """Development file."""
    test: str = ""
    """Test file, with or without labels."""
    text: str = "text"
    """Column of the first text."""
    pair: str = ""
    """Column of the second text; empty for one text."""
    label: str = "label"
    """Column of the label."""
    labels: list[str] = Field(default_factory=list)
    """The classes; empty: those of the training file, sorted. `metric = "spearman"` needs none."""
    metric: Literal["accuracy", "f1", "macro_f1", "matthews", "spearman", "pearson"] = "accuracy"
    """Headline metric."""
    epochs: Count = 3
    """Passes over the training file; protocol "sentiment": at most 50, and this sets another limit."""


GLUE_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")


class Evaluate(Settings):
    """`[evaluate]`: fine-tuning on tasks."""

    tasks: list[str] = Field(default_factory=lambda: list(GLUE_TASKS))
    """Tasks run without --task."""
    data: str = "data/glue"
    """Folder with a folder a task."""
    seeds: Count = 5
    """Fine-tuning runs a task, with seeds 0, 1, …"""
    protocol: Literal["electra", "electra-mean", "sentiment"] = "electra"
    """Named set of fine-tuning conventions."""
    batch_size: Count = 32
    """Examples a step."""
    sequence_length: int = Field(128, ge=8)
    """Longest input in tokens."""
    learning_rate: float = Field(0.0, ge=0)
    """Peak learning rate; 0: by size (3e-4 small, 1e-4 base, 5e-5 large)."""
    layer_decay: float = Field(0.0, ge=0, le=1)
    """Factor a layer from the top down; 0: by size (.8 small and base, .9 large)."""
    layer_decay_exponent: Literal["paper", "google"] = "paper"
    """Top layer gets decay¹ (paper) or decay² (the official code); protocol "sentiment" has its own way."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay."""
    warmup_fraction: Share = 0.1
    """Share of the steps with rising learning rate."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout while fine-tuning, also before the classifier (protocol "sentiment": 0.3 in its own)."""
    swap_pairs: bool = True
    """Train MRPC and STS-B on both orders of each pair."""
    task: list[OwnTask] = Field(default_factory=list)
    """Tasks of one's own."""


class ProjectSettings(Settings):
    """A whole project file, every setting filled in."""

    project: ProjectTable = Field(default_factory=ProjectTable)
    corpus: Corpus = Field(default_factory=Corpus)
    vocab: Vocab = Field(default_factory=Vocab)
    rows: Rows = Field(default_factory=Rows)
    model: Model = Field(default_factory=Model)
    generator: Generator = Field(default_factory=Generator)
    masking: Masking = Field(default_factory=Masking)
    objective: ObjectiveTable = Field(default_factory=ObjectiveTable)
    optimizer: Optimizer = Field(default_factory=Optimizer)
    schedule: Schedule = Field(default_factory=Schedule)
    pretrain: Pretrain = Field(default_factory=Pretrain)
    evaluate: Evaluate = Field(default_factory=Evaluate)
    collaborate: Collaborate = Field(default_factory=Collaborate)
