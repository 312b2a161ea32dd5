"""Which objective goes with which backbone: the contract, and the folders that come out, read by others."""

from pathlib import Path

import pytest
import torch
from small_batches import batch_of_pieces, random_batch, small_settings, vocabulary_facts

from electra_cli.errors import ExitCode, InputError, ProjectError
from electra_cli.models.folders import HFFolder, load_rtd_head, write_folder
from electra_cli.objectives import BUILTIN, find
from electra_cli.objectives.base import Objective
from electra_cli.training.contract import check_contract

VOCABULARY = 120
Tables = dict[str, dict[str, object]]

SYSTEMS: dict[str, Tables] = {
    "coco_lm": {"objective": {"contrast_min_tokens": 8, "vector_size": 16}},
    "deberta_v3": {
        "objective": {"enhanced_mask_decoder": False},
        "generator": {"width": 0, "sharing": "gradient-disentangled"},
    },
    "electra": {"generator": {"sharing": "gradient-disentangled"}},
    "fast_electra": {},
    "masked_lm": {},
    "mcl": {},
    "replace_mlm": {"objective": {"positions": "all"}},
}
BACKBONES = ("deberta", "modern")
"""`electra` is what every other test of a system uses."""
PAIRS = [(use, backbone) for use in SYSTEMS for backbone in BACKBONES]


def make(use: str, backbone: str, folder: Path | None = None, **changes: dict[str, object]) -> Objective:
    """The pair; what is frozen in it reads a masked language model that is written to `folder`."""
    tables = {name: dict(values) for name, values in SYSTEMS[use].items()}
    for name, values in ({"objective": {"use": use}, "model": {"backbone": backbone}} | changes).items():
        tables[name] = tables.get(name, {}) | values
    if use == "fast_electra":
        assert folder is not None
        write_folder(folder, make("masked_lm", backbone).exports()["generator"])
        tables["objective"]["auxiliary"] = str(folder)
        tables["rows"] = {"segment_pairs": False}
    settings = small_settings(**tables)
    objective = find(use, Path())(settings, vocabulary_facts(VOCABULARY))
    if folder is not None and use == "fast_electra":
        objective.load_frozen({"auxiliary": folder})
    return objective.train()


def test_every_built_in_system_is_asked() -> None:
    assert set(SYSTEMS) == set(BUILTIN)


@pytest.mark.parametrize(("use", "backbone"), PAIRS)
def test_a_pair_keeps_the_contract(use: str, backbone: str, tmp_path: Path) -> None:
    contract = check_contract(make(use, backbone, tmp_path), random_batch(4, 32, VOCABULARY))
    assert (contract.breaches, contract.without_gradient) == ((), ())


@pytest.mark.parametrize("use", SYSTEMS)
def test_what_comes_out_of_modern_loads_in_transformers_without_a_word(use: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    exports = make(use, "modern", tmp_path).exports()
    heads = {kind for kind, content in exports.items() if content.rtd_head}
    assert heads == ({"encoder"} if use in ("coco_lm", "deberta_v3") else set())
    for kind, content in exports.items():
        write_folder(tmp_path / kind, content)
        model, loading = getattr(transformers, content.architecture).from_pretrained(
            tmp_path / kind, output_loading_info=True
        )
        assert not any(loading.values()), (kind, loading)
        ours, theirs = outputs(content, model.eval())
        assert (ours - theirs).abs().max() <= 1e-5 * ours.abs().max()


def outputs(content: HFFolder, model: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """At the real tokens, of rows of one piece, for transformers knows no other."""
    batch = batch_of_pieces([[[7, 8, 9, 40]], [[11] * 20], [[]]], 24)
    is_real_BS = batch.piece_BS > 0
    with torch.no_grad():
        ours = content.run(batch.token_ids_BS, batch.piece_BS, batch.position_BS, batch.segment_BS)
        theirs = model(input_ids=batch.token_ids_BS, attention_mask=is_real_BS.long())[0]
    return ours[is_real_BS], theirs.reshape(*ours.shape)[is_real_BS]


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_copy_head_lies_beside_the_encoder_with_the_sign_turned(backbone: str, tmp_path: Path) -> None:
    objective, batch = make("coco_lm", backbone), random_batch(3, 24, VOCABULARY)
    exports = objective.exports()
    write_folder(tmp_path, exports["encoder"])
    given = batch.token_ids_BS, batch.piece_BS, batch.position_BS, batch.segment_BS
    with torch.no_grad():
        hidden_BSD = exports["encoder"].run(*given)
        original_BS = objective.discriminator.copy_head(hidden_BSD)
        replaced_BS = load_rtd_head(tmp_path).detect(hidden_BSD, batch.position_BS)
    assert set(exports) == {"encoder", "generator"} and original_BS.abs().max() > 0.01
    # float32: where gelu carries it, its two halves are rounded each.
    torch.testing.assert_close(replaced_BS, -original_BS, rtol=1e-5, atol=1e-6)


def test_coco_lm_with_the_papers_bias_keeps_the_contract_and_has_no_folder() -> None:
    objective = make("coco_lm", "electra", model={"backbone": "electra", "relative_buckets": 16})
    contract = check_contract(objective, random_batch(4, 32, VOCABULARY))
    assert (contract.breaches, contract.without_gradient) == ((), ())
    tables = [name for name, _ in objective.named_parameters() if name.endswith("table_RH")]
    assert tables == [f"{one}.encoder.relative_bias.table_RH" for one in ("discriminator", "generator")]
    with pytest.raises(InputError, match="relative_buckets = 16"):
        objective.exports()


@pytest.mark.parametrize(
    ("use", "tables", "said"),
    [
        (
            "deberta_v3",
            {"objective": {"enhanced_mask_decoder": True}},
            ("objective.enhanced_mask_decoder = true", 'model.backbone = "modern"'),
        ),
        (
            "deberta_v3",
            {"generator": {"sharing": "tied"}},
            ('generator.sharing = "tied"', 'objective.update = "decoupled"'),
        ),
        (
            "coco_lm",
            {"generator": {"sharing": "gradient-disentangled"}},
            ('generator.sharing = "gradient-disentangled"', 'objective.use = "coco_lm"'),
        ),
        ("electra", {"model": {"embedding_size": 16}}, ("embedding_size = 16", "hidden_size = 32")),
        (
            "electra",
            {"generator": {"sharing": "all"}},
            ("generator.width = 16", "hidden_size = 32"),
        ),
    ],
)
def test_a_wrong_pair_is_refused_with_both_values(use: str, tables: Tables, said: tuple[str, str]) -> None:
    model = {"backbone": "modern", **tables.pop("model", {})}
    with pytest.raises(ProjectError) as caught:
        make(use, "modern", None, model=model, **tables)
    assert caught.value.exit_code == ExitCode.PROJECT
    assert all(value in caught.value.message for value in said)
