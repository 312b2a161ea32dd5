// The passes of a transformer layer between its matrix products, each reading and writing its numbers once.
//
// Activations are float32 or bfloat16 in memory, float32 in the arithmetic; parameters and sums are float32.
// Rows are independent, and sums over rows are made chunk by chunk: the number of threads changes no bit.

#include "native_numbers.h"

#include <cmath>

namespace {

using namespace electra;

inline int64_t smaller(int64_t one, int64_t other) { return one < other ? one : other; }

// Which values dropout keeps, made again wherever it is needed: electra_cli/kernels/dropout.py defines it.
class Pattern {
 public:
  // Two numbers, where SplitMix64 begins and the least level that is kept; null: all is kept.
  explicit Pattern(const int64_t* numbers, int64_t width)
      : numbers_(numbers), levels_(make_buffer<int16_t>(numbers ? width + 2 * LANES : 0)) {}

  explicit operator bool() const { return numbers_ != nullptr; }

  // For value i of the `count` values from `first` on: whether its level is at least least().
  const int16_t* levels(int64_t first, int64_t count) const {
    const uint64_t start = static_cast<uint64_t>(numbers_[0]);
    const int64_t begin = first / LANES, end = (first + count + LANES - 1) / LANES;
    int16_t* levels = levels_.get();
#pragma omp simd
    for (int64_t i = 0; i < end - begin; ++i) {
      uint64_t z = start + static_cast<uint64_t>(begin + i + 1) * 0x9E3779B97F4A7C15u;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      z ^= z >> 31;
      std::memcpy(levels + LANES * i, &z, sizeof z);
    }
    return levels + first % LANES;
  }

  int16_t least() const { return static_cast<int16_t>(numbers_[1]); }

 private:
  static constexpr int64_t LANES = 4;
  const int64_t* numbers_;
  Buffer<int16_t> levels_;
};

// The share of the normal distribution below x, and the slope of x times it.
struct Normal {
  float below, slope;
};

// Within 1.5e-7 by Abramowitz & Stegun, Handbook, 7.1.26; its exp is the density's.
inline Normal normal_at(float x) {
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
  return {below, below + x * (0.39894228f * power)};
}

template <typename Number>
void bias_gelu(Number* product, const float* bias, Number* value, int64_t num_rows, int64_t width, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t row = 0; row < num_rows; ++row) {
    Number* slope = product + row * width;
    Number* to = value + row * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const float x = widen(slope[i]) + bias[i];
      const Normal normal = normal_at(x);
      narrow(x * normal.below, to + i);
      narrow(normal.slope, slope + i);
    }
  }
}

template <typename Number>
void gelu_back(const Number* gradient, const Number* slope, Number* of_product, float* sums, int64_t num_rows,
               int64_t width, int64_t chunk_rows, int threads) {
  const int64_t num_chunks = (num_rows + chunk_rows - 1) / chunk_rows;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    float* of_bias = sums + chunk * width;
    std::memset(of_bias, 0, width * sizeof(float));
    const int64_t last = smaller((chunk + 1) * chunk_rows, num_rows);
    for (int64_t row = chunk * chunk_rows; row < last; ++row) {
      const Number* from = gradient + row * width;
      const Number* factor = slope + row * width;
      Number* to = of_product + row * width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        const float value = widen(from[i]) * widen(factor[i]);
        narrow(value, to + i);
        of_bias[i] += value;
      }
    }
  }
}

template <typename Number>
void gated_gelu(Number* product, const int64_t* dropping, float scale, Number* value, int64_t num_rows,
                int64_t width, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    const Pattern pattern(dropping, width);
    const Buffer<float> buffer = make_buffer<float>(width);
    float* factor = buffer.get();
    for (int64_t i = 0; i < width; ++i) factor[i] = scale;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < num_rows; ++row) {
      Number* opened = product + row * 2 * width;
      Number* gate = opened + width;
      Number* to = value + row * width;
      if (pattern) {
        const int16_t* level = pattern.levels(row * width, width);
        const int16_t least = pattern.least();
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) factor[i] = level[i] >= least ? scale : 0.0f;
      }
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        const float x = widen(opened[i]);
        const Normal normal = normal_at(x);
        const float gelu = x * normal.below * factor[i];
        const float passed = widen(gate[i]);
        narrow(gelu * passed, to + i);
        narrow(normal.slope * factor[i] * passed, opened + i);
        narrow(gelu, gate + i);
      }
    }
  }
}

template <typename Number>
void gated_gelu_back(const Number* gradient, const Number* slopes, Number* of_product, int64_t num_rows,
                     int64_t width, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t row = 0; row < num_rows; ++row) {
    const Number* from = gradient + row * width;
    const Number* factor = slopes + row * 2 * width;
    Number* to = of_product + row * 2 * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      narrow(widen(from[i]) * widen(factor[i]), to + i);
      narrow(widen(from[i]) * widen(factor[width + i]), to + width + i);
    }
  }
}

template <typename Number>
void drop(const Number* values, const int64_t* dropping, float scale, const Number* residual, Number* to,
          int64_t num_values, int threads) {
  constexpr int64_t CHUNK = 2048;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    const Pattern pattern(dropping, CHUNK);
#pragma omp for schedule(static)
    for (int64_t first = 0; first < num_values; first += CHUNK) {
      const int64_t count = smaller(CHUNK, num_values - first);
      const int16_t* level = pattern.levels(first, count);
      const int16_t least = pattern.least();
      const Number* from = values + first;
      Number* into = to + first;
      if (residual) {
        const Number* beside = residual + first;
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
          narrow(widen(beside[i]) + widen(from[i]) * (level[i] >= least ? scale : 0.0f), into + i);
        }
      } else {
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
          narrow(widen(from[i]) * (level[i] >= least ? scale : 0.0f), into + i);
        }
      }
    }
  }
}

template <typename Number>
void add_norm(Number* product, const float* bias, const int64_t* dropping, float scale, const Number* residual,
              const float* gain, const float* shift, float eps, Number* output, float* inverse, int64_t num_rows,
              int64_t width, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    const Buffer<float> buffer = make_buffer<float>(width);
    float* y = buffer.get();
    const Pattern pattern(dropping, width);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < num_rows; ++row) {
      Number* normal = product + row * width;
      const Number* beside = residual + row * width;
      float sum = 0.0f;
      if (pattern) {
        const int16_t* level = pattern.levels(row * width, width);
        const int16_t least = pattern.least();
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < width; ++i) {
          y[i] = widen(beside[i]) + (widen(normal[i]) + bias[i]) * (level[i] >= least ? scale : 0.0f);
          sum += y[i];
        }
      } else {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < width; ++i) {
          y[i] = widen(beside[i]) + (widen(normal[i]) + bias[i]);
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
      Number* to = output + row * width;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        const float value = y[i] * factor;
        narrow(value, normal + i);
        narrow(value * gain[i] + shift[i], to + i);
      }
    }
  }
}

template <typename Number>
void add_norm_back(const Number* gradient, const Number* normal, const float* inverse, const float* gain,
                   const int64_t* dropping, float scale, Number* of_residual, Number* of_product, float* sums,
                   int64_t num_rows, int64_t width, int64_t chunk_rows, int threads) {
  const int64_t num_chunks = (num_rows + chunk_rows - 1) / chunk_rows;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    const Pattern pattern(dropping, width);
    float* of_gain = sums + chunk * 3 * width;
    float* of_shift = of_gain + width;
    float* of_bias = of_shift + width;
    std::memset(of_gain, 0, 3 * width * sizeof(float));
    const int64_t last = smaller((chunk + 1) * chunk_rows, num_rows);
    for (int64_t row = chunk * chunk_rows; row < last; ++row) {
      const Number* from = gradient + row * width;
      const Number* x = normal + row * width;
      Number* beside = of_residual + row * width;
      float sum = 0.0f, along = 0.0f;
#pragma omp simd reduction(+ : sum, along)
      for (int64_t i = 0; i < width; ++i) {
        const float of_output = widen(from[i]);
        const float of_normal = of_output * gain[i];
        sum += of_normal;
        along += of_normal * widen(x[i]);
        of_gain[i] += of_output * widen(x[i]);
        of_shift[i] += of_output;
      }
      sum /= static_cast<float>(width);
      along /= static_cast<float>(width);
      const float factor = inverse[row];
      if (pattern) {
        const int16_t* level = pattern.levels(row * width, width);
        const int16_t least = pattern.least();
        Number* to = of_product + row * width;
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) {
          const float of_y = factor * (widen(from[i]) * gain[i] - sum - widen(x[i]) * along);
          const float of_value = of_y * (level[i] >= least ? scale : 0.0f);
          narrow(of_y, beside + i);
          narrow(of_value, to + i);
          of_bias[i] += of_value;
        }
      } else {
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) {
          const float of_y = factor * (widen(from[i]) * gain[i] - sum - widen(x[i]) * along);
          narrow(of_y, beside + i);
          of_bias[i] += of_y;
        }
      }
    }
  }
}

template <typename Number>
void soften(Number* score, const Number* mask, int64_t num_heads, const int64_t* dropping, Number* used,
            int64_t num_maps, int64_t sequence, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    const Buffer<float> buffer = make_buffer<float>(sequence);
    float* x = buffer.get();
    const Pattern pattern(dropping, sequence);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < num_maps * sequence; ++row) {
      const int64_t map = row / sequence;
      Number* weight = score + row * sequence;
      const Number* beside = mask + (map / num_heads * sequence + row % sequence) * sequence;
      float top = -INFINITE;
#pragma omp simd reduction(max : top)
      for (int64_t i = 0; i < sequence; ++i) {
        x[i] = widen(weight[i]) + widen(beside[i]);
        top = x[i] > top ? x[i] : top;
      }
      float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < sequence; ++i) {
        const float over = x[i] - top;
        // exp_of takes NaN for 0.
        x[i] = over == over ? exp_of(over) : over;
        sum += x[i];
      }
      const float factor = 1.0f / sum;
      if (pattern) {
        const int16_t* level = pattern.levels(row * sequence, sequence);
        const int16_t least = pattern.least();
        Number* to = used + row * sequence;
#pragma omp simd
        for (int64_t i = 0; i < sequence; ++i) {
          const float value = x[i] * factor;
          narrow(value, weight + i);
          // A product, so that NaN stays NaN.
          narrow(value * (level[i] >= least ? 1.0f : 0.0f), to + i);
        }
      } else {
#pragma omp simd
        for (int64_t i = 0; i < sequence; ++i) narrow(x[i] * factor, weight + i);
      }
    }
  }
}

template <typename Number>
void soften_back(Number* gradient, const Number* weight, const int64_t* dropping, Number* used, int64_t num_rows,
                 int64_t sequence, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    const Pattern pattern(dropping, sequence);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < num_rows; ++row) {
      Number* of_score = gradient + row * sequence;
      const Number* w = weight + row * sequence;
      float along = 0.0f;
      if (pattern) {
        const int16_t* level = pattern.levels(row * sequence, sequence);
        const int16_t least = pattern.least();
        Number* to = used + row * sequence;
#pragma omp simd reduction(+ : along)
        for (int64_t i = 0; i < sequence; ++i) {
          const float taken = widen(w[i]) * (level[i] >= least ? 1.0f : 0.0f);
          narrow(taken, to + i);
          along += widen(of_score[i]) * taken;
        }
#pragma omp simd
        for (int64_t i = 0; i < sequence; ++i) {
          const float of_weight = widen(of_score[i]) * (level[i] >= least ? 1.0f : 0.0f);
          narrow(widen(w[i]) * (of_weight - along), of_score + i);
        }
      } else {
#pragma omp simd reduction(+ : along)
        for (int64_t i = 0; i < sequence; ++i) along += widen(of_score[i]) * widen(w[i]);
#pragma omp simd
        for (int64_t i = 0; i < sequence; ++i) narrow(widen(w[i]) * (widen(of_score[i]) - along), of_score + i);
      }
    }
  }
}

template <typename Number>
void rotate(const Number* from, const float* cosine, const float* sine, float sign, Number* to, int64_t num_rows,
            int64_t num_heads, int64_t half, int64_t width, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* cos = cosine + row * 2 * half;
    const float* sin = sine + row * 2 * half;
    for (int64_t head = 0; head < num_heads; ++head) {
      const Number* a = from + row * width + head * 2 * half;
      const Number* b = a + half;
      Number* to_a = to + row * width + head * 2 * half;
      Number* to_b = to_a + half;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        narrow(widen(a[i]) * cos[i] - widen(b[i]) * (sign * sin[i]), to_a + i);
        narrow(widen(b[i]) * cos[i] + widen(a[i]) * (sign * sin[i]), to_b + i);
      }
    }
    const int64_t turned = num_heads * 2 * half;
    std::memcpy(to + row * width + turned, from + row * width + turned, (width - turned) * sizeof(Number));
  }
}

}  // namespace

extern "C" {

// With x = product + bias: value = x P(x), and product becomes its derivative P(x) + x p(x), for P the normal
// distribution and p its density.
#define BIAS_GELU(N, name)                                                                                       \
  void electra_bias_gelu_##name(N* product, const float* bias, N* value, int64_t num_rows, int64_t width,        \
                                int threads) {                                                                   \
    bias_gelu(product, bias, value, num_rows, width, threads);                                                   \
  }
FOR_BOTH(BIAS_GELU)

// of_product = gradient * slope, and of each chunk of rows the sum that the bias gets, [chunks, width].
#define GELU_BACK(N, name)                                                                                       \
  void electra_gelu_back_##name(const N* gradient, const N* slope, N* of_product, float* sums, int64_t num_rows, \
                                int64_t width, int64_t chunk_rows, int threads) {                                \
    gelu_back(gradient, slope, of_product, sums, num_rows, width, chunk_rows, threads);                          \
  }
FOR_BOTH(GELU_BACK)

// A row of the product holds x and a gate, each of `width`. value = scale * kept * gelu(x) * gate, and x and gate
// become its derivatives by x and by gate. Without a pattern all is kept.
#define GATED_GELU(N, name)                                                                                      \
  void electra_gated_gelu_##name(N* product, const int64_t* pattern, float scale, N* value, int64_t num_rows,    \
                                 int64_t width, int threads) {                                                   \
    gated_gelu(product, pattern, scale, value, num_rows, width, threads);                                        \
  }
FOR_BOTH(GATED_GELU)

// of_product = gradient * the derivatives, both halves of a row.
#define GATED_GELU_BACK(N, name)                                                                                 \
  void electra_gated_gelu_back_##name(const N* gradient, const N* slopes, N* of_product, int64_t num_rows,       \
                                      int64_t width, int threads) {                                              \
    gated_gelu_back(gradient, slopes, of_product, num_rows, width, threads);                                     \
  }
FOR_BOTH(GATED_GELU_BACK)

// to = residual + scale * kept * values; without a residual 0 in its place.
#define DROP(N, name)                                                                                            \
  void electra_drop_##name(const N* values, const int64_t* pattern, float scale, const N* residual, N* to,       \
                           int64_t num_values, int threads) {                                                    \
    drop(values, pattern, scale, residual, to, num_values, threads);                                             \
  }
FOR_BOTH(DROP)

// With y = residual + scale * kept * (product + bias): product becomes (y - mean) / deviation of its row,
// output = that * gain + shift, and inverse = 1 / deviation. Without a pattern all is kept, unscaled.
#define ADD_NORM(N, name)                                                                                        \
  void electra_add_norm_##name(N* product, const float* bias, const int64_t* pattern, float scale,                  \
                               const N* residual, const float* gain, const float* shift, float eps, N* output,   \
                               float* inverse, int64_t num_rows, int64_t width, int threads) {                   \
    add_norm(product, bias, pattern, scale, residual, gain, shift, eps, output, inverse, num_rows, width, threads); \
  }
FOR_BOTH(ADD_NORM)

// The way back: of_residual and of_product from the gradient of the output, and of each chunk of rows the sums
// that gain, shift and bias get, [chunks, 3, width]. Without a pattern of_product is of_residual, not written.
#define ADD_NORM_BACK(N, name)                                                                                   \
  void electra_add_norm_back_##name(const N* gradient, const N* normal, const float* inverse, const float* gain, \
                                    const int64_t* pattern, float scale, N* of_residual, N* of_product,             \
                                    float* sums, int64_t num_rows, int64_t width, int64_t chunk_rows,            \
                                    int threads) {                                                               \
    add_norm_back(gradient, normal, inverse, gain, pattern, scale, of_residual, of_product, sums, num_rows, width,  \
                  chunk_rows, threads);                                                                          \
  }
FOR_BOTH(ADD_NORM_BACK)

// The rows of num_maps maps become softmax(score + mask); the maps of num_heads heads share a mask. With a
// pattern: used = that where it is kept, else 0.
#define SOFTEN(N, name)                                                                                          \
  void electra_soften_##name(N* score, const N* mask, int64_t num_heads, const int64_t* pattern, N* used,           \
                             int64_t num_maps, int64_t sequence, int threads) {                                  \
    soften(score, mask, num_heads, pattern, used, num_maps, sequence, threads);                                     \
  }
FOR_BOTH(SOFTEN)

// The way back: the gradient of what was used becomes that of the score. With a pattern used is made again.
#define SOFTEN_BACK(N, name)                                                                                     \
  void electra_soften_back_##name(N* gradient, const N* weight, const int64_t* pattern, N* used, int64_t num_rows,  \
                                  int64_t sequence, int threads) {                                               \
    soften_back(gradient, weight, pattern, used, num_rows, sequence, threads);                                      \
  }
FOR_BOTH(SOFTEN_BACK)

// Of each row the first num_heads heads of 2 * half values turned by its angles: (a, b) in the two halves of a head
// becomes (a cos - b sin, b cos + a sin), with `sign` times the sine. What is left of the row is copied.
#define ROTATE(N, name)                                                                                          \
  void electra_rotate_##name(const N* from, const float* cosine, const float* sine, float sign, N* to,           \
                             int64_t num_rows, int64_t num_heads, int64_t half, int64_t width, int threads) {    \
    rotate(from, cosine, sine, sign, to, num_rows, num_heads, half, width, threads);                             \
  }
FOR_BOTH(ROTATE)
}
