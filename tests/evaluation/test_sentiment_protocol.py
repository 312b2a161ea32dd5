"""The sentiment protocol: its head, its rates, its steps, and when it stops."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation_cases import make_project, request, tsv, write, write_model
from torch import nn

from electra_cli.errors import ProjectError
from electra_cli.evaluation.classifier import Classifier, MeanSwishGluHead, mean_pooled
from electra_cli.evaluation.early_stopping import BestEpoch
from electra_cli.evaluation.finetune import Recipe, Run, answer, fine_tune
from electra_cli.evaluation.glue import load_setup
from electra_cli.evaluation.layer_rates import (
    Rates,
    choose_rates,
    make_optimizer,
    rate_factors,
    rate_groups,
    set_learning_rate,
)
from electra_cli.evaluation.place import Place
from electra_cli.evaluation.rate_schedule import SCHEDULES, Course
from electra_cli.evaluation.setup import Setup
from electra_cli.evaluation.sources import load_task
from electra_cli.evaluation.task_runs import Prepared, prepare
from electra_cli.evaluation.tasks import GLUE
from electra_cli.models.encoder import Encoder, num_parameters
from electra_cli.models.sizes import SIZES, EncoderConfig
from electra_cli.project import load_project
from electra_cli.settings import Evaluate
from electra_cli.settings_protocols import PROTOCOLS, SENTIMENT


def test_electra_base_has_the_published_number_of_trainable_parameters() -> None:
    row = SIZES["base"]
    config = EncoderConfig(
        vocab_size=30_522,
        num_layers=row.num_layers,
        hidden_size=row.hidden_size,
        feed_forward_size=row.feed_forward_size,
        num_heads=row.num_heads,
        embedding_size=row.embedding_size,
        max_positions=512,
    )
    with torch.device("meta"):
        classifier = Classifier(Encoder(config), 3, 0.3, SENTIMENT.head)
    assert num_parameters(classifier) == 112_830_979
    assert all(parameter.requires_grad for parameter in classifier.parameters())
    # Every parameter has a rate, the shared module one.
    assert sum(len(group.parameters) for group in rate_groups(classifier, Rates(1e-5, 0.95, "top"))) == len(
        list(classifier.parameters())
    )


def test_the_head_is_the_published_formula_with_one_swish_glu() -> None:
    head = MeanSwishGluHead(6, 3, 0.3).double().eval()
    head.reset(3)
    hidden_BSD = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    piece_BS = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    value = {name: parameter.detach().numpy() for name, parameter in head.state_dict().items()}
    assert len([name for name in value if name.startswith("swish_glu")]) == 2

    def swish_glu(state: np.ndarray) -> np.ndarray:
        both = state @ value["swish_glu.projection.weight"].T + value["swish_glu.projection.bias"]
        left, right = both[:, :1024], both[:, 1024:]
        return left * right / (1 + np.exp(-right))

    pooled = np.stack([hidden_BSD[0, :3].mean(0).numpy(), hidden_BSD[1].mean(0).numpy()])
    state = swish_glu(pooled.astype(np.float32) @ value["first.weight"].T + value["first.bias"])
    state = swish_glu(state @ value["second.weight"].T + value["second.bias"])
    expected = state @ value["output.weight"].T + value["output.bias"]
    # The mean is taken in float32.
    np.testing.assert_allclose(
        head.float()(hidden_BSD.float(), piece_BS).detach().numpy(), expected, rtol=2e-5, atol=2e-6
    )


def test_padding_is_no_part_of_the_mean() -> None:
    hidden_BSD = torch.arange(12.0).view(1, 4, 3)
    hidden_BSD[0, 2:] = float("nan")
    pooled_BD = mean_pooled(hidden_BSD.bfloat16(), torch.tensor([[1, 1, 0, 0]]))
    assert pooled_BD.dtype == torch.float32
    assert pooled_BD.tolist() == [[1.5, 2.5, 3.5]]


def test_a_fresh_head_is_a_function_of_the_seed() -> None:
    one, other = MeanSwishGluHead(8, 3, 0.0), MeanSwishGluHead(8, 3, 0.0)
    one.reset(5)
    other.reset(5)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    limit = 1 / 8**0.5
    assert one.first.weight.abs().max() <= limit
    assert float(one.first.weight.detach().std()) == pytest.approx(limit / 3**0.5, rel=0.05)
    other.reset(6)
    assert not torch.equal(one.first.weight, other.first.weight)


def test_the_top_layer_learns_like_the_head_and_the_embeddings_least() -> None:
    factors = dict(rate_factors(12, Rates(1e-5, 0.95, "top")))
    assert factors["head"] == factors["layer 12"] == 1.0
    assert factors["layer 1"] == pytest.approx(0.95**11)
    assert factors["embeddings"] == pytest.approx(0.95**12)


def test_a_setting_that_the_protocol_would_ignore_is_refused() -> None:
    config = EncoderConfig(
        vocab_size=10,
        num_layers=1,
        hidden_size=8,
        feed_forward_size=8,
        num_heads=1,
        embedding_size=8,
        max_positions=8,
    )
    assert choose_rates(Evaluate(protocol="sentiment"), config).exponent == "top"
    with pytest.raises(ProjectError, match="would be ignored"):
        choose_rates(Evaluate(protocol="sentiment", layer_decay_exponent="google"), config)


def test_the_rates_are_those_of_torchs_cosine_with_warm_restarts() -> None:
    course = Course(protocol=SENTIMENT, peak=1e-5, warmup_fraction=0.0, num_epochs=12, steps_per_epoch=7)
    factors = [1.0, 0.95, 0.95**12]
    parameters = [nn.Parameter(torch.zeros(1)) for _ in factors]
    theirs = torch.optim.SGD(
        [{"params": [p], "lr": 1e-5 * f} for p, f in zip(parameters, factors, strict=True)]
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(theirs, T_0=5, eta_min=1e-7)
    for step in range(course.total):
        scheduler.step(step / course.steps_per_epoch)
        rate = SCHEDULES["cosine-restarts"](step, course)
        ours = [rate.least + rate.rate * factor for factor in factors]
        assert ours == pytest.approx([group["lr"] for group in theirs.param_groups], rel=1e-9)


def test_the_rates_are_those_of_the_authors_log() -> None:
    # jbeno/sentiment, electra_finetune/E1-EBFT.txt: the last of the 399 steps of epochs 1 to 6.
    course = Course(protocol=SENTIMENT, peak=1e-5, warmup_fraction=0.0, num_epochs=50, steps_per_epoch=399)
    shown = [SCHEDULES["cosine-restarts"](399 * epoch - 1, course) for epoch in range(1, 7)]
    logged = ["9.06e-06", "6.59e-06", "3.53e-06", "1.05e-06", "1.00e-07", "9.06e-06"]
    assert [f"{one.rate + one.least:.2e}" for one in shown] == logged


def test_a_step_is_plain_adamw_on_every_parameter(tmp_path: Path, setup: Setup) -> None:
    torch.manual_seed(0)
    classifier = Classifier(setup.subject.encoder, 2, 0.0, SENTIMENT.head)
    groups = rate_groups(classifier, Rates(1.0, 1.0, "top"))
    optimizer = make_optimizer(classifier, groups, protocol=SENTIMENT, weight_decay=0.01)
    set_learning_rate(optimizer, 1e-3)
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.01}
    copies = {name: nn.Parameter(p.detach().clone()) for name, p in classifier.named_parameters()}
    plain = torch.optim.AdamW(copies.values(), lr=1e-3, weight_decay=0.01)
    for name, parameter in classifier.named_parameters():
        parameter.grad = torch.randn_like(parameter)
        copies[name].grad = parameter.grad.clone()
    optimizer.step()
    plain.step()
    for name, parameter in classifier.named_parameters():
        # Two kernels of one formula.
        torch.testing.assert_close(parameter.detach(), copies[name].detach(), rtol=1e-5, atol=1e-7)


def recipe(**values: object) -> Recipe:
    given = {
        "epochs": 50,
        "batch_size": 48,
        "rates": Rates(3e-4, 0.95, "top"),
        "weight_decay": 0.01,
        "warmup_fraction": 0.0,
        "dropout": 0.0,
        "sequence_length": 64,
        "protocol": SENTIMENT,
    }
    return Recipe(**(given | values))  # type: ignore[arg-type]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    project = make_project(tmp_path, protocol="sentiment")
    return load_setup(project, write_model(tmp_path / "model"), request(tmp_path))


@pytest.fixture
def prepared(tmp_path: Path, setup: Setup) -> Prepared:
    rows = [[f"the film is {'very ' * (n % 5)}{('bad', 'good')[n % 2]}", str(n % 2)] for n in range(48)]
    for split in ("train", "dev"):
        write(tmp_path / f"glue/SST-2/{split}.tsv", tsv(["sentence", "label"], *rows))
    return prepare(load_task(GLUE["sst2"], Place(folder=tmp_path / "glue")), setup)


def gradients_of(prepared: Prepared, setup: Setup, micro_batch_size: int) -> dict[str, torch.Tensor]:
    classifier = Classifier(setup.subject.encoder, 2, 0.0, SENTIMENT.head).eval()
    classifier.head.reset(0)
    protocol = replace(SENTIMENT, micro_batch_size=micro_batch_size)
    run = Run(classifier, prepared.training, recipe(protocol=protocol), setup.arithmetic)
    run.update(np.arange(41))
    return {name: p.grad.clone() for name, p in classifier.named_parameters() if p.grad is not None}


def test_the_gradients_of_parts_add_up_to_that_of_the_batch(prepared: Prepared, setup: Setup) -> None:
    setup = replace(setup, arithmetic=replace(setup.arithmetic, name="fp32"))
    whole, parts = gradients_of(prepared, setup, 0), gradients_of(prepared, setup, 16)
    assert set(whole) == set(parts)
    for name, gradient in whole.items():
        # Float32 sums in another order; 41 is no multiple of 16.
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-6)


def test_a_run_stops_without_gain_and_keeps_its_best_epoch(prepared: Prepared, setup: Setup) -> None:
    classifier = prepared.classifier
    seen: list[torch.Tensor] = []
    notes: list[str] = []

    def validate() -> float | None:
        seen.append(classifier.encoder.embeddings.word_VE.detach().clone())
        return None if len(seen) == 1 else 0.5 + 0.1 * (len(seen) == 3)

    def advance(amount: int = 1, *, note: str = "") -> None:
        notes.append(note)

    short = recipe(protocol=replace(SENTIMENT, patience=4))
    failure = fine_tune(
        classifier, setup.subject.initial, prepared.training, short, 0, setup.arithmetic, advance, validate
    )
    assert not failure
    # The best is the third; four more bring no gain.
    assert len(seen) == 7
    assert torch.equal(classifier.encoder.embeddings.word_VE, seen[2])
    assert not torch.equal(seen[2], seen[6])
    assert [note for note in notes if note][-1] == "epoch 7: dev 0.5000, best of epoch 3"


def test_what_one_word_tells_is_learned(prepared: Prepared, setup: Setup) -> None:
    classifier = prepared.classifier
    quick = recipe(epochs=20, rates=Rates(3e-4, 1.0, "top"), batch_size=16)
    assert not fine_tune(classifier, setup.subject.initial, prepared.training, quick, 0, setup.arithmetic)
    output_NC = answer(classifier, prepared.dev["sst2"], setup.arithmetic)
    assert (output_NC.argmax(1) == prepared.training.target_N).all()


def test_a_gain_below_the_least_is_none() -> None:
    module = nn.Linear(1, 1)
    best = BestEpoch(module, patience=2, least_gain=1e-5)
    for epoch, score in enumerate((0.5, 0.500005, 0.500009), start=1):
        best.hear(epoch, score)
    assert (best.epoch, best.is_over(3)) == (1, True)
    best.hear(4, 0.50002)
    assert (best.epoch, best.is_over(4)) == (4, False)


def test_a_run_that_leaves_the_numbers_stops_at_the_end_of_its_epoch(
    prepared: Prepared, setup: Setup
) -> None:
    broken = {name: value.clone() for name, value in setup.subject.initial.items()}
    broken["embeddings.word_VE"][:] = float("nan")
    failure = fine_tune(
        prepared.classifier, broken, prepared.training, recipe(), 0, setup.arithmetic, validate=lambda: None
    )
    assert "the loss was not finite within the first 1 of 50 steps" in failure


def test_the_protocol_brings_its_settings_and_a_persons_own_win(tmp_path: Path) -> None:
    write(tmp_path / "project.toml", '[evaluate]\nprotocol = "sentiment"\nbatch_size = 8\n')
    project = load_project(tmp_path / "project.toml", ["evaluate.weight_decay=0.5"])
    evaluate = project.settings.evaluate
    assert (evaluate.learning_rate, evaluate.layer_decay, evaluate.sequence_length) == (1e-5, 0.95, 512)
    assert (evaluate.batch_size, evaluate.weight_decay) == (8, 0.5)
    assert evaluate.tasks == ["sentiment"]
    assert project.origins["evaluate.learning_rate"] == "default for protocol sentiment"
    assert project.origins["evaluate.batch_size"].endswith("project.toml line 3")
    plain = load_project(None, [], cwd=tmp_path / "empty").settings.evaluate
    assert (plain.learning_rate, plain.batch_size) == (3e-4, 32)


def test_an_unknown_protocol_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as caught:
        load_project(None, ["evaluate.protocol=sentimental"], cwd=tmp_path)
    assert 'did you mean "sentiment"' in caught.value.problems[0].message


def test_every_named_protocol_is_there() -> None:
    for name in ("electra", "sentiment"):
        assert Evaluate.model_validate({"protocol": name}).protocol in PROTOCOLS
    known = set(Evaluate.model_fields)
    assert all(set(protocol.defaults) <= known for protocol in PROTOCOLS.values())
