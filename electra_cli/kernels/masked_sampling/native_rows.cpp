// What is done to a row of the vocabulary product between the matrix products: while a core's cache holds it.
//
// Rows are independent, so the number of threads changes no bit. Strides count numbers, not bytes.

#include "native_numbers.h"

namespace {

using namespace electra;

constexpr int64_t BLOCK = 128;

// weight[i] = exp((logit[i] - top) / temperature) of one block; returns their sum in double precision.
inline double weigh_block(const float* logit, float top, float temperature, float* weight) {
  if (temperature == 1.0f) {
#pragma omp simd
    for (int64_t i = 0; i < BLOCK; ++i) weight[i] = exp_of(logit[i] - top);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < BLOCK; ++i) weight[i] = exp_of((logit[i] - top) / temperature);
  }
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < BLOCK; ++i) sum += static_cast<double>(weight[i]);
  return sum;
}

// The weights of a row at a temperature: prefix sums over its blocks, and with `to` the weights themselves.
template <typename Number>
void weigh_row(const float* logits, float top, float temperature, double* prefix, Number* to, int64_t num_ids) {
  double running = 0.0;
  for (int64_t start = 0, block = 0; start < num_ids; start += BLOCK, ++block) {
    float weight[BLOCK];
    running += weigh_block(logits + start, top, temperature, weight);
    prefix[block] = running;
    if (!to) continue;
    const int64_t size = num_ids - start < BLOCK ? num_ids - start : BLOCK;
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) narrow(weight[i], to + start + i);
  }
}

// The first id whose running sum exceeds uniform * total, block by block; if rounding leaves none, the last with a
// weight above 0.
int64_t draw(const float* logits, float top, float temperature, const double* prefix, int64_t num_blocks,
             double uniform) {
  const double threshold = uniform * prefix[num_blocks - 1];
  int64_t block = 0;
  while (block < num_blocks && prefix[block] <= threshold) ++block;
  float weight[BLOCK];
  if (block == num_blocks) --block;
  // Beyond the first turn only where rounding lifted the threshold to the total itself.
  while (weigh_block(logits + block * BLOCK, top, temperature, weight) == 0.0 && block > 0) --block;
  const double rest = threshold - (block > 0 ? prefix[block - 1] : 0.0);
  double running = 0.0;
  int64_t last = 0;
  for (int64_t i = 0; i < BLOCK; ++i) {
    running += static_cast<double>(weight[i]);
    if (running > rest) return block * BLOCK + i;
    if (weight[i] > 0.0f) last = i;
  }
  return block * BLOCK + last;
}

template <typename Number>
void weigh_rows(Number* tile, int64_t stride, const float* bias, const int64_t* target, const int64_t* forbidden,
                const double* uniform, float temperature, int keep, double* target_logit, double* forbidden_logit,
                float* largest, double* total, int64_t* sampled, int64_t num_rows, int64_t num_ids, int threads) {
  const int64_t num_blocks = (num_ids + BLOCK - 1) / BLOCK;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    const Buffer<float> logits = make_buffer<float>(num_blocks * BLOCK);
    const Buffer<double> prefix = make_buffer<double>(num_blocks);
    for (int64_t id = num_ids; id < num_blocks * BLOCK; ++id) logits[id] = -INFINITE;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < num_rows; ++row) {
      Number* weights = tile + row * stride;
      float* logit = logits.get();
      float top = -INFINITE;
      int32_t most_bits = 0;
#pragma omp simd reduction(max : top, most_bits)
      for (int64_t id = 0; id < num_ids; ++id) {
        const float value = widen(weights[id]) + bias[id];
        logit[id] = value;
        top = value > top ? value : top;
        const int32_t bits = static_cast<int32_t>(bits_of(value) & 0x7fffffffu);
        most_bits = bits > most_bits ? bits : most_bits;
      }
      const bool is_lost = most_bits >= 0x7f800000;
      if (is_lost) {
        for (int64_t id = 0; id < num_ids; ++id) logit[id] = 0.0f;
        top = 0.0f;
      }
      target_logit[row] = logit[target[row]];
      forbidden_logit[row] = -INFINITE;
      if (forbidden && forbidden[row] >= 0) {
        const float out = logit[forbidden[row]];
        forbidden_logit[row] = out;
        logit[forbidden[row]] = -INFINITE;
        if (out >= top) {
          top = -INFINITE;
#pragma omp simd reduction(max : top)
          for (int64_t id = 0; id < num_ids; ++id) top = logit[id] > top ? logit[id] : top;
        }
      }
      Number* to = keep ? weights : nullptr;
      if (uniform) {
        weigh_row(logit, top, temperature, prefix.get(), temperature == 1.0f ? to : nullptr, num_ids);
        sampled[row] = draw(logit, top, temperature, prefix.get(), num_blocks, uniform[row]);
      }
      if (!uniform || temperature != 1.0f) weigh_row(logit, top, 1.0f, prefix.get(), to, num_ids);
      largest[row] = top;
      total[row] = is_lost ? std::numeric_limits<double>::quiet_NaN() : prefix[num_blocks - 1];
    }
  }
}

template <typename Number>
void add_columns(const Number* tile, int64_t stride, const float* scale, float* sums, int64_t num_rows,
                 int64_t num_ids, int threads) {
  constexpr int64_t WIDTH = 1024;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t start = 0; start < num_ids; start += WIDTH) {
    const int64_t end = start + WIDTH < num_ids ? start + WIDTH : num_ids;
    for (int64_t row = 0; row < num_rows; ++row) {
      const Number* weight = tile + row * stride;
      const float factor = scale[row];
#pragma omp simd
      for (int64_t id = start; id < end; ++id) sums[id] += factor * widen(weight[id]);
    }
  }
}

}  // namespace

extern "C" {

// With logit = product + bias, of each row: the logit of its target and of its forbidden id, which then counts as
// -inf; the largest logit that is left; total = the sum of exp(logit - largest), NaN if a logit is not finite. With
// `uniform` an id drawn from exp((logit - largest) / temperature). With `keep` the tile, which holds the products,
// holds exp(logit - largest) afterwards. A negative forbidden id is none, its logit -inf; `forbidden` may be null.
#define WEIGH_ROWS(N, name)                                                                                      \
  void electra_weigh_rows_##name(N* tile, int64_t stride, const float* bias, const int64_t* target,              \
                                 const int64_t* forbidden, const double* uniform, float temperature, int keep,   \
                                 double* target_logit, double* forbidden_logit, float* largest, double* total,   \
                                 int64_t* sampled, int64_t num_rows, int64_t num_ids, int threads) {             \
    weigh_rows(tile, stride, bias, target, forbidden, uniform, temperature, keep, target_logit, forbidden_logit, \
               largest, total, sampled, num_rows, num_ids, threads);                                             \
  }
FOR_BOTH(WEIGH_ROWS)

// sums += tile transposed times scale.
#define ADD_COLUMNS(N, name)                                                                                     \
  void electra_add_columns_##name(const N* tile, int64_t stride, const float* scale, float* sums,                \
                                  int64_t num_rows, int64_t num_ids, int threads) {                              \
    add_columns(tile, stride, scale, sums, num_rows, num_ids, threads);                                          \
  }
FOR_BOTH(ADD_COLUMNS)
}
