// Numbers as the compiled kernels use them: bfloat16 in memory, float32 in the arithmetic, and exp.
//
// No header of torch: a file compiles in a second, and one build serves every version of it.

#ifndef ELECTRA_NATIVE_NUMBERS_H
#define ELECTRA_NATIVE_NUMBERS_H

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

namespace electra {

constexpr float INFINITE = std::numeric_limits<float>::infinity();

// Below this exp is taken as 0: at most 1e-38.
constexpr float LOWEST = -87.0f;

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float widen(float value) { return value; }
inline float widen(uint16_t bf16) { return float_of(static_cast<uint32_t>(bf16) << 16); }

// To the nearest, ties to even; NaN stays NaN.
inline void narrow(float value, float* to) { *to = value; }
inline void narrow(float value, uint16_t* to) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  *to = static_cast<uint16_t>(value == value ? rounded : 0x7fc0u);
}

// exp(x) for x <= 0, within 1e-7 of itself: 2^n times a polynomial of the rest, |rest| <= ln(2) / 2.
// Branch-free, so that compilers vectorise it. NaN gives 0.
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
  const float power = float_of(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
  return x > LOWEST ? value * power : 0.0f;
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Memory of one thread, at the start of a cache line.
template <typename Number>
using Buffer = std::unique_ptr<Number[], Free>;

template <typename Number>
Buffer<Number> make_buffer(int64_t size) {
  const size_t bytes = (static_cast<size_t>(size) * sizeof(Number) + 63) / 64 * 64;
  return Buffer<Number>(static_cast<Number*>(std::aligned_alloc(64, bytes)));
}

}  // namespace electra

// Each function twice: NAME_float32 and NAME_bfloat16.
#define FOR_BOTH(DEFINE) DEFINE(float, float32) DEFINE(uint16_t, bfloat16)

#endif
