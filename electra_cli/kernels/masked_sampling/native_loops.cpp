// The two passes over logits that are not matrix products, each reading and writing its numbers once.
//
// No header of torch: the file compiles in a second, and one build serves every version of it.
// Rows are independent, so the number of threads changes no bit. Strides count numbers, not bytes.

#include <cstdint>
#include <cstring>

namespace {

constexpr int64_t BLOCK = 128;

// Below this exp is taken as 0: at most 1e-38 of a row whose largest weight is 1.
constexpr float LOWEST = -87.0f;

inline float widen(float value) { return value; }

inline float widen(uint16_t bf16) {
  const uint32_t bits = static_cast<uint32_t>(bf16) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// exp(x) for x <= 0, within 1e-7 of itself: 2^n times a polynomial of the rest, |rest| <= ln(2) / 2.
// Branch-free, so that compilers vectorise it. NaN gives 0; the caller marks such rows.
inline float exp_of(float x) {
  const float kept = x > LOWEST ? x : LOWEST;
  // Adding and taking away 1.5 * 2^23 rounds to the nearest whole number.
  const float n = (kept * 1.44269504f + 12582912.0f) - 12582912.0f;
  // ln(2) in two parts, the first with zeros at its end, so that n times it is exact.
  const float rest = (kept - n * 0.693359375f) + n * 2.12194440e-4f;
  float value = 1.98412698e-4f;
  value = value * rest + 1.38888889e-3f;
  value = value * rest + 8.33333333e-3f;
  value = value * rest + 4.16666667e-2f;
  value = value * rest + 1.66666667e-1f;
  value = value * rest + 0.5f;
  value = value * rest + 1.0f;
  value = value * rest + 1.0f;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return x > LOWEST ? value * power : 0.0f;
}

template <typename Product>
void add_bias(const Product* product, int64_t product_stride, const float* bias, float* logits,
              int64_t logits_stride, float* largest, int64_t num_rows, int64_t num_ids, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t row = 0; row < num_rows; ++row) {
    const Product* from = product + row * product_stride;
    float* to = logits + row * logits_stride;
    float top = largest[row];
#pragma omp simd reduction(max : top)
    for (int64_t id = 0; id < num_ids; ++id) {
      const float logit = widen(from[id]) + bias[id];
      to[id] = logit;
      top = logit > top ? logit : top;
    }
    largest[row] = top;
  }
}

}  // namespace

extern "C" {

// logits = product + bias; largest = max(largest, largest of the logits). `logits` may be `product`.
void electra_add_bias_float32(const float* product, int64_t product_stride, const float* bias, float* logits,
                              int64_t logits_stride, float* largest, int64_t num_rows, int64_t num_ids,
                              int threads) {
  add_bias(product, product_stride, bias, logits, logits_stride, largest, num_rows, num_ids, threads);
}

void electra_add_bias_bfloat16(const uint16_t* product, int64_t product_stride, const float* bias, float* logits,
                               int64_t logits_stride, float* largest, int64_t num_rows, int64_t num_ids,
                               int threads) {
  add_bias(product, product_stride, bias, logits, logits_stride, largest, num_rows, num_ids, threads);
}

// Weights exp((logit - largest) / temperature) and their sums over blocks in double precision. The weights
// replace the logits where `keep` is not 0.
void electra_weigh(float* logits, int64_t logits_stride, const float* largest, float temperature, double* block_sum,
                   int64_t block_stride, int64_t num_rows, int64_t num_blocks, int keep, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t row = 0; row < num_rows; ++row) {
    const float top = largest[row];
    for (int64_t block = 0; block < num_blocks; ++block) {
      float* logit = logits + row * logits_stride + block * BLOCK;
      float weight[BLOCK];
      if (temperature == 1.0f) {
#pragma omp simd
        for (int64_t id = 0; id < BLOCK; ++id) weight[id] = exp_of(logit[id] - top);
      } else {
#pragma omp simd
        for (int64_t id = 0; id < BLOCK; ++id) weight[id] = exp_of((logit[id] - top) / temperature);
      }
      double sum = 0.0;
#pragma omp simd reduction(+ : sum)
      for (int64_t id = 0; id < BLOCK; ++id) sum += static_cast<double>(weight[id]);
      block_sum[row * block_stride + block] = sum;
      if (keep) std::memcpy(logit, weight, sizeof weight);
    }
  }
}
}
