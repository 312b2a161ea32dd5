"""The GPU kernels: three for losses and draws, two for gradients; no [M, V] and no atomics.

A program never sees more than a tile of logits. Offsets are 64-bit, since rows × width and rows × blocks
pass 2³¹; whatever lies outside the inputs is masked. Products of float32 are not rounded to TF32.

Letters: R rows of a tile, C ids of a tile (one block), P a part of the width, N blocks rounded up to a power
of two.
"""

# A kernel's arguments have types at its launch.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

import triton
import triton.language as tl


@triton.jit
def _product(left_RP, right_PC, sum_RC, WIDEN: tl.constexpr):
    """sum + left @ right in float32. The interpreter would multiply bf16 as whole numbers: it widens."""
    if WIDEN:
        left_RP = left_RP.to(tl.float32)
        right_PC = right_PC.to(tl.float32)
    return tl.dot(left_RP, right_PC, sum_RC, input_precision="ieee")


@triton.jit
def _load_part(matrix, at_R, is_there_R, part_P, WIDTH: tl.constexpr):
    """Rows `at` of a matrix in a part of its width; 0 outside."""
    mask_RP = is_there_R[:, None] & (part_P < WIDTH)[None, :]
    return tl.load(matrix + at_R[:, None] * WIDTH + part_P[None, :], mask=mask_RP, other=0.0)


@triton.jit
def _logits(
    hidden,
    table,
    bias,
    row_R,
    is_row_R,
    id_C,
    is_id_C,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    IDS: tl.constexpr,
    PART: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """float32 logits of one tile; 0 outside the inputs."""
    logit_RC = tl.zeros([ROWS, IDS], dtype=tl.float32)
    for start in range(0, WIDTH, PART):
        part_P = start + tl.arange(0, PART)
        hidden_RP = _load_part(hidden, row_R, is_row_R, part_P, WIDTH)
        table_CP = _load_part(table, id_C, is_id_C, part_P, WIDTH)
        logit_RC = _product(hidden_RP, tl.trans(table_CP), logit_RC, WIDEN)
    return logit_RC + tl.load(bias + id_C, mask=is_id_C, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _keep_logit(logit_RC, id_C, wanted_R, kept, row_R, block, IDS: tl.constexpr):
    """Write the logit of each row's wanted id, by the one program whose block it lies in."""
    at_wanted_R = tl.sum(tl.where(id_C[None, :] == wanted_R[:, None], logit_RC, 0.0), 1)
    is_here_R = (wanted_R >= block * IDS) & (wanted_R < block * IDS + IDS)
    tl.store(kept + row_R, at_wanted_R, mask=is_here_R)


@triton.jit
def _first_past(weight_RN, limit_R, place_N, COUNT: tl.constexpr):
    """Of each row the first place whose running sum exceeds the limit, else the last of weight > 0.

    A place of weight 0 is never taken, whatever a scan in another order rounds to.
    """
    is_past_RN = (tl.cumsum(weight_RN, 1) > limit_R[:, None]) & (weight_RN > 0)
    first_R = tl.min(tl.where(is_past_RN, place_N[None, :], COUNT), 1)
    return tl.minimum(first_R, tl.max(tl.where(weight_RN > 0, place_N[None, :], 0), 1))


@triton.jit
def block_statistics(
    hidden,
    table,
    bias,
    target,
    forbidden,
    largest,
    weight,
    total,
    target_logit,
    forbidden_logit,
    num_rows,
    num_ids,
    num_blocks,
    temperature,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    IDS: tl.constexpr,
    PART: tl.constexpr,
    HAS_FORBIDDEN: tl.constexpr,
    IS_TEMPERED: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Of each row and block: the largest logit z that may be drawn, Σ exp((z - largest) / T) and at T = 1.

    The program that meets a row's target or forbidden id writes its logit. A block with a logit that is not
    finite has a NaN for its largest.
    """
    row_R = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    block = tl.program_id(1).to(tl.int64)
    id_C = block * IDS + tl.arange(0, IDS)
    is_row_R = row_R < num_rows
    is_id_C = id_C < num_ids
    logit_RC = _logits(hidden, table, bias, row_R, is_row_R, id_C, is_id_C, WIDTH, ROWS, IDS, PART, WIDEN)
    is_odd_RC = ((logit_RC != logit_RC) | (tl.abs(logit_RC) == float("inf"))) & is_id_C[None, :]
    is_odd_R = tl.max(is_odd_RC.to(tl.int32), 1)

    # -1, in no block, for the rows beyond the last.
    target_R = tl.load(target + row_R, mask=is_row_R, other=-1)
    _keep_logit(logit_RC, id_C, target_R, target_logit, row_R, block, IDS)
    may_RC = is_row_R[:, None] & is_id_C[None, :]
    if HAS_FORBIDDEN:
        forbidden_R = tl.load(forbidden + row_R, mask=is_row_R, other=-1)
        _keep_logit(logit_RC, id_C, forbidden_R, forbidden_logit, row_R, block, IDS)
        may_RC = may_RC & (id_C[None, :] != forbidden_R[:, None])
    kept_RC = tl.where(may_RC, logit_RC, float("-inf"))
    largest_R = tl.max(kept_RC, 1)
    # Where nothing may be drawn, -inf - 0 gives weights 0 and not NaN.
    below_RC = kept_RC - tl.where(largest_R == float("-inf"), 0.0, largest_R)[:, None]
    at_R = row_R * num_blocks + block
    total_R = tl.sum(tl.exp(below_RC), 1)
    tl.store(total + at_R, total_R, mask=is_row_R)
    if IS_TEMPERED:
        tl.store(weight + at_R, tl.sum(tl.exp(below_RC / temperature), 1), mask=is_row_R)
    tl.store(largest + at_R, tl.where(is_odd_R > 0, float("nan"), largest_R), mask=is_row_R)


@triton.jit
def combine_blocks(
    largest,
    weight,
    total,
    target_logit,
    forbidden,
    forbidden_logit,
    uniform,
    loss,
    peak,
    log_total,
    top,
    block_of,
    rest,
    num_rows,
    num_blocks,
    temperature,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
    HAS_FORBIDDEN: tl.constexpr,
    DRAWS: tl.constexpr,
):
    """Of each row its loss, log Σ exp(z - peak), the block its uniform number falls into, and the rest."""
    row_R = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row_R = row_R < num_rows
    block_N = tl.arange(0, BLOCKS)
    at_RN = row_R[:, None] * num_blocks + block_N[None, :]
    is_there_RN = is_row_R[:, None] & (block_N < num_blocks)[None, :]
    largest_RN = tl.load(largest + at_RN, mask=is_there_RN, other=float("-inf"))
    is_odd_R = tl.max((largest_RN != largest_RN).to(tl.int32), 1)
    largest_RN = tl.where(largest_RN == largest_RN, largest_RN, float("-inf"))
    top_R = tl.max(largest_RN, 1)
    top_R = tl.where(top_R == float("-inf"), 0.0, top_R)

    peak_R = top_R
    total_RN = tl.load(total + at_RN, mask=is_there_RN, other=0.0)
    if HAS_FORBIDDEN:
        is_forbidden_R = tl.load(forbidden + row_R, mask=is_row_R, other=-1) >= 0
        at_forbidden_R = tl.load(forbidden_logit + row_R, mask=is_row_R & is_forbidden_R, other=float("-inf"))
        peak_R = tl.where(at_forbidden_R > top_R, at_forbidden_R, top_R)
    whole_R = tl.sum(total_RN * tl.exp(largest_RN - peak_R[:, None]), 1)
    if HAS_FORBIDDEN:
        whole_R += tl.exp(at_forbidden_R - peak_R)
    log_total_R = tl.where(is_odd_R > 0, float("nan"), tl.log(whole_R))
    loss_R = (peak_R - tl.load(target_logit + row_R, mask=is_row_R, other=0.0)) + log_total_R
    tl.store(loss + row_R, loss_R, mask=is_row_R)
    tl.store(peak + row_R, peak_R, mask=is_row_R)
    tl.store(log_total + row_R, log_total_R, mask=is_row_R)

    if DRAWS:
        # Sums and prefix in float64, as in the definition.
        weight_RN = tl.load(weight + at_RN, mask=is_there_RN, other=0.0).to(tl.float64)
        weight_RN *= tl.exp((largest_RN - top_R[:, None]) / temperature).to(tl.float64)
        threshold_R = tl.load(uniform + row_R, mask=is_row_R, other=0.0) * tl.sum(weight_RN, 1)
        chosen_R = tl.where(is_odd_R > 0, 0, _first_past(weight_RN, threshold_R, block_N, BLOCKS))
        before_R = tl.sum(tl.where(block_N[None, :] < chosen_R[:, None], weight_RN, 0.0), 1)
        tl.store(block_of + row_R, chosen_R.to(tl.int64), mask=is_row_R)
        # Less than nothing is left where the scan and the sum round differently.
        tl.store(rest + row_R, tl.maximum(threshold_R - before_R, 0.0), mask=is_row_R)
        tl.store(top + row_R, tl.where(is_odd_R > 0, float("nan"), top_R), mask=is_row_R)


@triton.jit
def draw_in_block(
    hidden,
    table,
    bias,
    forbidden,
    top,
    block_of,
    rest,
    sampled,
    num_rows,
    num_ids,
    temperature,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    IDS: tl.constexpr,
    PART: tl.constexpr,
    HAS_FORBIDDEN: tl.constexpr,
):
    """Of each row: its block's logits again, and the first id in it whose running sum passes the rest."""
    row_R = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row_R = row_R < num_rows
    block_R = tl.load(block_of + row_R, mask=is_row_R, other=0)
    place_C = tl.arange(0, IDS)
    id_RC = block_R[:, None] * IDS + place_C[None, :]
    is_id_RC = id_RC < num_ids
    logit_RC = tl.load(bias + id_RC, mask=is_id_RC, other=0.0).to(tl.float32)
    for start in range(0, WIDTH, PART):
        part_P = start + tl.arange(0, PART)
        hidden_RP = _load_part(hidden, row_R, is_row_R, part_P, WIDTH).to(tl.float32)
        mask_RCP = is_id_RC[:, :, None] & (part_P < WIDTH)[None, None, :]
        table_RCP = tl.load(
            table + id_RC[:, :, None] * WIDTH + part_P[None, None, :], mask=mask_RCP, other=0.0
        )
        logit_RC += tl.sum(table_RCP.to(tl.float32) * hidden_RP[:, None, :], 2)

    may_RC = is_id_RC
    if HAS_FORBIDDEN:
        may_RC = may_RC & (id_RC != tl.load(forbidden + row_R, mask=is_row_R, other=-1)[:, None])
    top_R = tl.load(top + row_R, mask=is_row_R, other=0.0)
    weight_RC = tl.exp((logit_RC - top_R[:, None]) / temperature)
    # A row that is lost still yields an id that is allowed.
    weight_RC = tl.where((top_R == top_R)[:, None], weight_RC, 1.0)
    weight_RC = tl.where(may_RC, weight_RC, 0.0).to(tl.float64)
    rest_R = tl.load(rest + row_R, mask=is_row_R, other=0.0)
    chosen_R = _first_past(weight_RC, rest_R, place_C, IDS)
    tl.store(sampled + row_R, block_R * IDS + chosen_R, mask=is_row_R)


@triton.jit
def _slope(
    logit_RC,
    row_R,
    is_row_R,
    id_C,
    is_id_C,
    target,
    coefficient,
    peak,
    log_total,
):
    """dL/dlogit of one tile: coefficient · (softmax - [id is the target])."""
    peak_R = tl.load(peak + row_R, mask=is_row_R, other=0.0)
    log_total_R = tl.load(log_total + row_R, mask=is_row_R, other=0.0)
    coefficient_R = tl.load(coefficient + row_R, mask=is_row_R, other=0.0)
    target_R = tl.load(target + row_R, mask=is_row_R, other=-1)
    share_RC = tl.exp((logit_RC - peak_R[:, None]) - log_total_R[:, None])
    is_target_RC = id_C[None, :] == target_R[:, None]
    slope_RC = coefficient_R[:, None] * (share_RC - is_target_RC.to(tl.float32))
    return tl.where(is_row_R[:, None] & is_id_C[None, :], slope_RC, 0.0)


@triton.jit
def hidden_gradient(
    hidden,
    table,
    bias,
    target,
    coefficient,
    peak,
    log_total,
    scale,
    grad_hidden,
    num_rows,
    num_ids,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    IDS: tl.constexpr,
    PART: tl.constexpr,
    OUT: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Σ_ids slope · table for a tile of rows and a part of the width; this program owns both."""
    row_R = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row_R = row_R < num_rows
    out_P = tl.program_id(1) * OUT + tl.arange(0, OUT)
    sum_RP = tl.zeros([ROWS, OUT], dtype=tl.float32)
    for start in range(0, num_ids, IDS):
        id_C = start + tl.arange(0, IDS).to(tl.int64)
        is_id_C = id_C < num_ids
        logit_RC = _logits(hidden, table, bias, row_R, is_row_R, id_C, is_id_C, WIDTH, ROWS, IDS, PART, WIDEN)
        slope_RC = _slope(logit_RC, row_R, is_row_R, id_C, is_id_C, target, coefficient, peak, log_total)
        table_CP = _load_part(table, id_C, is_id_C, out_P, WIDTH)
        sum_RP = _product(slope_RC.to(table_CP.dtype), table_CP, sum_RP, WIDEN)
    mask_RP = is_row_R[:, None] & (out_P < WIDTH)[None, :]
    tl.store(grad_hidden + row_R[:, None] * WIDTH + out_P[None, :], sum_RP * tl.load(scale), mask=mask_RP)


@triton.jit
def table_gradient(
    hidden,
    table,
    bias,
    target,
    coefficient,
    peak,
    log_total,
    scale,
    grad_table,
    grad_bias,
    num_rows,
    num_ids,
    table_rows,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    IDS: tl.constexpr,
    PART: tl.constexpr,
    OUT: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Σ_rows slope · hidden for a tile of ids and a part of the width, and Σ_rows slope; padding gets 0."""
    id_C = tl.program_id(0).to(tl.int64) * IDS + tl.arange(0, IDS)
    is_id_C = id_C < num_ids
    out_P = tl.program_id(1) * OUT + tl.arange(0, OUT)
    sum_CP = tl.zeros([IDS, OUT], dtype=tl.float32)
    sum_C = tl.zeros([IDS], dtype=tl.float32)
    for start in range(0, num_rows, ROWS):
        row_R = start + tl.arange(0, ROWS).to(tl.int64)
        is_row_R = row_R < num_rows
        logit_RC = _logits(hidden, table, bias, row_R, is_row_R, id_C, is_id_C, WIDTH, ROWS, IDS, PART, WIDEN)
        slope_RC = _slope(logit_RC, row_R, is_row_R, id_C, is_id_C, target, coefficient, peak, log_total)
        hidden_RP = _load_part(hidden, row_R, is_row_R, out_P, WIDTH)
        sum_CP = _product(tl.trans(slope_RC.to(hidden_RP.dtype)), hidden_RP, sum_CP, WIDEN)
        sum_C += tl.sum(slope_RC, 0)
    is_table_C = id_C < table_rows
    factor = tl.load(scale)
    mask_CP = is_table_C[:, None] & (out_P < WIDTH)[None, :]
    tl.store(grad_table + id_C[:, None] * WIDTH + out_P[None, :], sum_CP * factor, mask=mask_CP)
    if tl.program_id(1) == 0:
        tl.store(grad_bias + id_C, sum_C * factor, mask=is_table_C)
