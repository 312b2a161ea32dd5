// The passes of a transformer layer between its matrix products, each reading and writing its numbers once.
//
// No header of torch: the file compiles in a second, and one build serves every version of it.
// Rows are independent, and sums over rows are made chunk by chunk: the number of threads changes no bit.

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

// Below this exp is taken as 0: at most 1e-38.
constexpr float LOWEST = -87.0f;

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
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return x > LOWEST ? value * power : 0.0f;
}

}  // namespace

extern "C" {

// With x = product + bias: value = x P(x), and product becomes its derivative P(x) + x p(x), for P the normal
// distribution and p its density. P is within 1.5e-7 by Abramowitz & Stegun, Handbook, 7.1.26; its exp is p's.
void electra_bias_gelu(float* product, const float* bias, float* value, int64_t num_rows, int64_t width,
                       int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t row = 0; row < num_rows; ++row) {
    float* slope = product + row * width;
    float* to = value + row * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const float x = slope[i] + bias[i];
      const float power = exp_of(-0.5f * x * x);
      // 0.3275911 / sqrt(2)
      const float t = 1.0f / (1.0f + 0.23164190f * std::fabs(x));
      float sum = 1.061405429f;
      sum = sum * t - 1.453152027f;
      sum = sum * t + 1.421413741f;
      sum = sum * t - 0.284496736f;
      sum = sum * t + 0.254829592f;
      const float beyond = 0.5f * sum * t * power;
      const float below = x > 0.0f ? 1.0f - beyond : beyond;
      to[i] = x * below;
      slope[i] = below + x * (0.39894228f * power);
    }
  }
}

// With y = residual + scale * kept * (product + bias): product becomes (y - mean) / deviation of its row,
// output = that * gain + shift, and inverse = 1 / deviation. Without `kept` all is kept, unscaled.
void electra_add_norm(float* product, const float* bias, const uint8_t* kept, float scale, const float* residual,
                      const float* gain, const float* shift, float eps, float* output, float* inverse,
                      int64_t num_rows, int64_t width, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t row = 0; row < num_rows; ++row) {
    float* y = product + row * width;
    const float* beside = residual + row * width;
    const uint8_t* flag = kept ? kept + row * width : nullptr;
    float sum = 0.0f;
    if (flag) {
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < width; ++i) {
        y[i] = beside[i] + (y[i] + bias[i]) * (static_cast<float>(flag[i]) * scale);
        sum += y[i];
      }
    } else {
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < width; ++i) {
        y[i] = beside[i] + (y[i] + bias[i]);
        sum += y[i];
      }
    }
    const float mean = sum / static_cast<float>(width);
    float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < width; ++i) {
      y[i] -= mean;
      squares += y[i] * y[i];
    }
    const float factor = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
    inverse[row] = factor;
    float* to = output + row * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      y[i] *= factor;
      to[i] = y[i] * gain[i] + shift[i];
    }
  }
}

// The way back: of_residual and of_product from the gradient of the output, and of each chunk of rows the sums
// that gain, shift and bias get, [chunks, 3, width]. Without `kept` of_product is of_residual and not written.
void electra_add_norm_back(const float* gradient, const float* normal, const float* inverse, const float* gain,
                           const uint8_t* kept, float scale, float* of_residual, float* of_product, float* sums,
                           int64_t num_rows, int64_t width, int64_t chunk_rows, int threads) {
  const int64_t num_chunks = (num_rows + chunk_rows - 1) / chunk_rows;
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    float* of_gain = sums + chunk * 3 * width;
    float* of_shift = of_gain + width;
    float* of_bias = of_shift + width;
    std::memset(of_gain, 0, 3 * width * sizeof(float));
    const int64_t last = (chunk + 1) * chunk_rows < num_rows ? (chunk + 1) * chunk_rows : num_rows;
    for (int64_t row = chunk * chunk_rows; row < last; ++row) {
      const float* from = gradient + row * width;
      const float* x = normal + row * width;
      float* beside = of_residual + row * width;
      float sum = 0.0f, along = 0.0f;
#pragma omp simd reduction(+ : sum, along)
      for (int64_t i = 0; i < width; ++i) {
        const float of_normal = from[i] * gain[i];
        sum += of_normal;
        along += of_normal * x[i];
        of_gain[i] += from[i] * x[i];
        of_shift[i] += from[i];
      }
      sum /= static_cast<float>(width);
      along /= static_cast<float>(width);
      const float factor = inverse[row];
      if (kept) {
        const uint8_t* flag = kept + row * width;
        float* to = of_product + row * width;
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) {
          const float of_y = factor * (from[i] * gain[i] - sum - x[i] * along);
          beside[i] = of_y;
          to[i] = of_y * (static_cast<float>(flag[i]) * scale);
          of_bias[i] += to[i];
        }
      } else {
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) {
          beside[i] = factor * (from[i] * gain[i] - sum - x[i] * along);
          of_bias[i] += beside[i];
        }
      }
    }
  }
}

// Of each row the first num_heads heads of 2 * half values turned by its angles: (a, b) in the two halves of a head
// becomes (a cos - b sin, b cos + a sin), with `sign` times the sine. What is left of the row is copied.
void electra_rotate(const float* from, const float* cosine, const float* sine, float sign, float* to,
                    int64_t num_rows, int64_t num_heads, int64_t half, int64_t width, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* cos = cosine + row * 2 * half;
    const float* sin = sine + row * 2 * half;
    for (int64_t head = 0; head < num_heads; ++head) {
      const float* a = from + row * width + head * 2 * half;
      const float* b = a + half;
      float* to_a = to + row * width + head * 2 * half;
      float* to_b = to_a + half;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        to_a[i] = a[i] * cos[i] - b[i] * (sign * sin[i]);
        to_b[i] = b[i] * cos[i] + a[i] * (sign * sin[i]);
      }
    }
    const int64_t turned = num_heads * 2 * half;
    std::memcpy(to + row * width + turned, from + row * width + turned, (width - turned) * sizeof(float));
  }
}
}
