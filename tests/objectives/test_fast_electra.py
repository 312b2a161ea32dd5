"""Fast-ELECTRA: the temperature, the frozen model, the one loss, and the ids that come from elsewhere."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy_electra as plain
import pytest
import torch
from float64_cases import SMALL, Case, assert_gradients, make_case, pieces_of
from float64_cases import VOCABULARY as FEW
from small_batches import losses_of, random_batch, small_settings, total_loss, vocabulary_facts

from electra_cli.errors import InputError, ProjectError
from electra_cli.models.folders import write_folder
from electra_cli.objectives.fast_electra import FastElectra
from electra_cli.objectives.masked_lm import MaskedLM
from electra_cli.optimization.update import NetworkUpdate
from electra_cli.training.weights import module_tensors

VOCABULARY = 120


def write_auxiliary(folder: Path, size: int = VOCABULARY, **tables: dict[str, object]) -> Path:
    """A masked language model with weights of some size, as an export has it."""
    settings = small_settings(objective={"use": "masked_lm"}, project={"seed": 9}, **tables)
    objective = MaskedLM(settings, vocabulary_facts(size))
    random = np.random.default_rng(3)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.add_(torch.from_numpy(random.normal(0, 0.25, parameter.shape)))
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder, objective.exports()["generator"])
    return folder


@pytest.fixture(scope="module")
def auxiliary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_auxiliary(tmp_path_factory.mktemp("auxiliary"))


def fast_electra(
    folder: Path | None, own: dict[str, object] | None = None, size: int = VOCABULARY, **tables
) -> FastElectra:
    objective = {"use": "fast_electra", "auxiliary": str(folder or ""), **(own or {})}
    made = FastElectra(small_settings(objective=objective, **tables), vocabulary_facts(size))
    if folder is not None:
        made.load_frozen({"auxiliary": folder})
    return made.train()


def temperatures(own: dict[str, object], shares: list[float]) -> list[float]:
    objective = fast_electra(None, own)
    return [objective.temperature(torch.tensor(share)).item() for share in shares]


def test_the_temperature_falls_exponentially_as_in_equation_2():
    shares = [0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0]
    found = temperatures({}, shares)
    assert found == pytest.approx([2.0, 1.6065, 1.3679, 1.1353, 1.0498, 1.0067, 1.0000454], abs=1e-4)
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"temperature_schedule": "linear", "initial_temperature": 3.0}, [3.0, 2.0, 1.0]),
        ({"temperature_schedule": "polynomial", "temperature_power": 3.0}, [2.0, 1.125, 1.0]),
        ({"temperature_schedule": "constant", "initial_temperature": 1.5}, [1.5, 1.5, 1.5]),
    ],
)
def test_other_schedules(own, expected):
    assert temperatures(own, [0.0, 0.5, 1.0]) == pytest.approx(expected)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    tables = {**SMALL, "masking": {"fraction": 0.25, "keep_fraction": 0.4}}
    folder = write_auxiliary(tmp_path_factory.mktemp("small"), FEW, **tables)
    objective = fast_electra(folder, {"initial_temperature": 3.0}, FEW, **tables)
    return make_case(objective, objective.masking.choose)


def test_the_loss_and_its_gradient_equal_the_numpy_program(case):
    pieces = pieces_of(case, shown_to="auxiliary.network", corrupted_to="discriminator")

    def loss() -> float:
        return plain.rtd_sum(case.arrays, pieces, 2)

    assert losses_of(case.objective, case.batch).sums["rtd"].item() == pytest.approx(loss(), rel=1e-6)
    num_real = sum(len(piece.original) for piece in pieces)
    assert total_loss(case.objective, case.batch).item() == pytest.approx(loss() / num_real, rel=1e-6)
    assert_gradients(case, "rtd", loss, per_tensor=3)


def test_the_samples_are_those_of_the_softmax_at_the_temperature(case):
    """NumPy divides the logits; ours divides the states and the biases."""
    arrays = {name.replace("auxiliary.network", "generator"): array for name, array in case.arrays.items()}
    progress = torch.tensor(0.02)
    temperature = 1 + 2.0 * np.exp(-np.float32(0.02) / 0.1)
    pieces = pieces_of(case, shown_to="auxiliary.network", corrupted_to="discriminator")
    used = case.chosen.weight_M.numpy() > 0
    drawn = case.objective.draw(case.batch, progress).flatten().numpy()[used]
    uniform = case.objective.masking.uniform(case.batch, case.chosen).numpy()[used]
    expected = []
    for piece in pieces:
        if len(piece.chosen):
            own, uniform = uniform[: len(piece.chosen)], uniform[len(piece.chosen) :]
            logit = plain.token_logits(arrays, piece, 2) / temperature
            logit[:, 0] = -np.inf
            cumulative = np.exp(logit - logit.max(1, keepdims=True)).cumsum(1)
            expected += (cumulative <= own[:, None] * cumulative[:, -1:]).sum(1).tolist()
    assert drawn.tolist() == expected
    # At another temperature at least one of them is another.
    assert (
        drawn.tolist() != case.objective.draw(case.batch, torch.tensor(1.0)).flatten().numpy()[used].tolist()
    )


def test_a_high_temperature_makes_the_samples_worse(auxiliary):
    batch = random_batch(40, 32, VOCABULARY, full=True)
    objective = fast_electra(auxiliary, {"initial_temperature": 20.0, "temperature_decay": 0.05})
    drawn = [objective.draw(batch, torch.tensor(share)) for share in (0.0, 1.0)]
    kinds = [len(ids.unique()) for ids in drawn]
    assert kinds[0] > kinds[1]
    assert not any((ids == 0).any() for ids in drawn)


def test_held_out_rows_are_always_corrupted_at_temperature_1(auxiliary):
    objective = fast_electra(auxiliary, {"initial_temperature": 20.0})
    heldout = replace(random_batch(10, 32, VOCABULARY), is_heldout=True)
    first, last = (objective.draw(heldout, torch.tensor(share)) for share in (0.0, 1.0))
    assert torch.equal(first, last)


def test_the_auxiliary_model_is_frozen_undropped_and_in_no_checkpoint(auxiliary):
    objective = fast_electra(auxiliary, model={"dropout": 0.3, "attention_dropout": 0.3})
    assert objective.training and not any(part.training for part in objective.auxiliary.modules())
    before = {name: value.clone() for name, value in objective.auxiliary.state_dict().items()}
    update = NetworkUpdate(objective, objective.updates[0], objective.settings.optimizer)
    assert not any("auxiliary" in name for name in update.tensors())
    assert {name.partition(".")[0] for name in module_tensors(objective)} == {"discriminator"}
    batch = random_batch(6, 32, VOCABULARY)
    loss = total_loss(objective, batch)
    loss.backward()
    update.step(1e-2, loss.detach())
    assert all(p.grad is None and not p.requires_grad for p in objective.auxiliary.parameters())
    assert all(torch.equal(value, before[name]) for name, value in objective.auxiliary.state_dict().items())
    assert torch.equal(objective.draw(batch, torch.tensor(0.5)), objective.draw(batch, torch.tensor(0.5)))


def test_ids_that_the_batch_brings_take_the_place_of_the_auxiliary_model(auxiliary):
    objective, batch = fast_electra(auxiliary), random_batch(6, 32, VOCABULARY)
    drawn_BK = objective.draw(batch, torch.tensor(0.0))
    without = fast_electra(None)
    assert losses_of(objective, batch).sums == losses_of(without, replace(batch, drawn_BK=drawn_BK)).sums
    other = replace(batch, drawn_BK=torch.full_like(drawn_BK, 7))
    figures = without.summarise(losses_of(without, other).figures)
    assert figures["replaced_fraction"] > 0.1
    assert losses_of(without, other).sums != losses_of(objective, batch).sums


def test_cached_samples_spare_the_auxiliary_model(auxiliary):
    assert fast_electra(auxiliary, {"samples": "samples"}).auxiliary is None
    started = fast_electra(auxiliary, {"samples": "samples", "initial_weights": "auxiliary"})
    assert started.auxiliary is None
    fresh = fast_electra(auxiliary)
    layer = "discriminator.encoder.layers.0.qkv.weight"
    assert not torch.equal(started.get_parameter(layer), fresh.get_parameter(layer))


def test_the_discriminator_can_start_from_the_auxiliary_model(auxiliary):
    """Two-stage training copies the generator; embeddings alone, or nothing, are the other choices."""
    made = {start: fast_electra(auxiliary, {"initial_weights": start}) for start in STARTS}
    theirs = made["fresh"].auxiliary.network.encoder
    for name, value in theirs.state_dict().items():
        is_table = name.startswith("embeddings.")
        for start, objective in made.items():
            same = torch.equal(objective.discriminator.encoder.state_dict()[name], value)
            assert same == (start == "auxiliary" or (start == "embeddings" and is_table)), (start, name)


STARTS = ("fresh", "embeddings", "auxiliary")


# Torch's own tracer makes an instance of each autograd function that it meets.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_the_forward_pass_is_one_graph_whatever_the_temperature(auxiliary):
    objective, batch = fast_electra(auxiliary), random_batch(4, 32, VOCABULARY)
    compiled = torch.compile(objective, backend="eager", fullgraph=True)
    for share in (0.0, 0.4):
        expected = objective(batch, "fast_electra", torch.tensor(share)).sums["rtd"]
        found = compiled(batch, "fast_electra", torch.tensor(share)).sums["rtd"]
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_a_missing_auxiliary_model_is_named_before_anything_is_read():
    settings = small_settings(objective={"use": "fast_electra"})
    with pytest.raises(ProjectError, match=r"objective\.auxiliary is empty") as caught:
        FastElectra.reads(settings)
    assert "generator/" in caught.value.hint


def test_what_does_not_fit_is_refused_with_both_values(auxiliary, tmp_path):
    with pytest.raises(InputError, match=r"120 pieces.*has 130"):
        fast_electra(auxiliary, size=130)
    with pytest.raises(InputError, match=r"512 positions.*sequence_length = 600"):
        fast_electra(auxiliary, rows={"sequence_length": 600})
    with pytest.raises(InputError, match="num_layers = 2 there, 3 here"):
        fast_electra(auxiliary, {"initial_weights": "auxiliary"}, model={"num_layers": 3})
    with pytest.raises(InputError, match=r"embeddings of 32.*embedding_size = 24"):
        fast_electra(auxiliary, {"initial_weights": "embeddings"}, model={"embedding_size": 24})
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    write_folder(encoder, fast_electra(None).exports()["encoder"])
    with pytest.raises(InputError, match="no masked language model"):
        fast_electra(encoder)


def test_only_the_discriminator_is_exported(auxiliary):
    assert set(fast_electra(auxiliary).exports()) == {"encoder", "discriminator"}


@pytest.mark.parametrize("is_old", [False, True])
def test_a_bert_of_the_hub_can_be_the_auxiliary_model(tmp_path, is_old):
    """`BertForMaskedLM` computes the same logits; old files call LayerNorm's parameters gamma and beta."""
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file, save_file

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_act="gelu",
    )
    theirs = transformers.BertForMaskedLM(config).eval()
    with torch.no_grad():
        theirs.cls.predictions.bias.normal_()
    theirs.save_pretrained(tmp_path)
    if is_old:
        file = tmp_path / "model.safetensors"
        names = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
        tensors = load_file(file)
        for new, old in names:
            tensors = {name.replace(new, old): value for name, value in tensors.items()}
        save_file(tensors, file, metadata={"format": "pt"})
    network = fast_electra(tmp_path).auxiliary.network
    batch = random_batch(3, 32, VOCABULARY, full=True)
    with torch.no_grad():
        expected = theirs(input_ids=batch.token_ids_BS, token_type_ids=batch.segment_BS).logits
        state_ME = network(batch.token_ids_BS, batch, torch.arange(96))
        found = state_ME @ network.encoder.embeddings.word_VE.T + network.head.bias_V
    # float32, sums in another order.
    torch.testing.assert_close(found, expected.flatten(0, 1), rtol=1e-5, atol=1e-5)
