// Kernels of a training step in float32, for MindSpore's custom operators on the CPU.
//
// Each computes in one pass over its rows what stock operators do in several, and no matrix product.
// Sums do not depend on the number of threads. NaN and infinity pass through, since the step's
// overflow check relies on it: no -ffast-math. A function returns 0, or 1 where types are not the
// expected ones or a label is outside the vocabulary, which MindSpore raises as an error.
//
//   N rows   D size of a row   B batch   S positions   H heads   C head dimension   V vocabulary
//   M = B * K batches of a chunk's product   n its queries   m its keys   G query heads of a key head

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define KERNEL(name) extern "C" int name(int count, void** data, int*, int64_t** shapes, const char** types, void*, void*)
#define EXPECT(kinds) if (!fits(kinds, count, types)) return 1
#define SUM _Pragma("omp simd reduction(+ : sum)")
#define EACH _Pragma("omp simd")
#define ROWS _Pragma("omp parallel for schedule(static)")

namespace {

using Floats = const float* __restrict;
using Result = float* __restrict;
using Ints = const int32_t* __restrict;

bool fits(const char* kinds, int count, const char** types) {
  if ((int)strlen(kinds) != count) return false;
  for (int i = 0; i < count; i++)
    if (strcmp(types[i], kinds[i] == 'f' ? "float32" : "int32")) return false;
  return true;
}

Floats in(void** data, int i) { return static_cast<const float*>(data[i]); }
Ints ints(void** data, int i) { return static_cast<const int32_t*>(data[i]); }
Result out(void** data, int i) { return static_cast<float*>(data[i]); }

// exp to 2 units in the last place: 2^k times the Taylor series within +-ln(2)/2, to degree 7. 0 below -87.
inline float fast_exp(float x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  float bounded = x > 88.0f ? 88.0f : x;
  float shifted = bounded * 1.44269504f + magic, turns = shifted - magic;
  float r = bounded - turns * 0.693359375f + turns * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  int32_t bits;
  memcpy(&bits, &shifted, 4);
  bits = (bits - 0x4B400000 + 127) << 23;
  float scale;
  memcpy(&scale, &bits, 4);
  return x < -87.0f ? 0.0f : p * scale;
}

inline float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

}  // namespace

// x (N, D), weight (D), epsilon (1) -> result (N, D), 1/rms (N)
KERNEL(rms_norm) {
  EXPECT("fffff");
  const int64_t rows = shapes[0][0], size = shapes[0][1];
  const float epsilon = in(data, 2)[0];
  ROWS for (int64_t i = 0; i < rows; i++) {
    Floats x = in(data, 0) + i * size, weight = in(data, 1);
    Result y = out(data, 3) + i * size;
    float sum = 0;
    SUM for (int64_t j = 0; j < size; j++) sum += x[j] * x[j];
    const float inverse = 1.0f / std::sqrt(sum / size + epsilon);
    EACH for (int64_t j = 0; j < size; j++) y[j] = x[j] * inverse * weight[j];
    out(data, 4)[i] = inverse;
  }
  return 0;
}

// x (N, D), weight (D), 1/rms (N), gradient (N, D) -> gradients of x (N, D) and of weight (D)
KERNEL(rms_norm_gradient) {
  EXPECT("ffffff");
  const int64_t rows = shapes[0][0], size = shapes[0][1], blocks = 16;
  std::vector<float> parts(blocks * size, 0.0f);
  ROWS for (int64_t block = 0; block < blocks; block++) {
    Result part = parts.data() + block * size;
    for (int64_t i = rows * block / blocks; i < rows * (block + 1) / blocks; i++) {
      Floats x = in(data, 0) + i * size, weight = in(data, 1), gradient = in(data, 3) + i * size;
      Result dx = out(data, 4) + i * size;
      const float inverse = in(data, 2)[i];
      float sum = 0;
      SUM for (int64_t j = 0; j < size; j++) sum += gradient[j] * weight[j] * x[j];
      const float along = sum * inverse * inverse / size;
      EACH for (int64_t j = 0; j < size; j++) {
        dx[j] = inverse * (gradient[j] * weight[j] - x[j] * along);
        part[j] += gradient[j] * x[j] * inverse;
      }
    }
  }
  Result dw = out(data, 5);
  std::fill(dw, dw + size, 0.0f);
  for (int64_t block = 0; block < blocks; block++)
    for (int64_t j = 0; j < size; j++) dw[j] += parts[block * size + j];
  return 0;
}

// gate (N, D), up (N, D) -> silu(gate) * up
KERNEL(gated) {
  EXPECT("fff");
  const int64_t rows = shapes[0][0], size = shapes[0][1];
  ROWS for (int64_t i = 0; i < rows; i++) {
    Floats gate = in(data, 0) + i * size, up = in(data, 1) + i * size;
    Result y = out(data, 2) + i * size;
    EACH for (int64_t j = 0; j < size; j++) y[j] = gate[j] * sigmoid(gate[j]) * up[j];
  }
  return 0;
}

// gate, up, gradient (N, D) -> gradients of gate and up
KERNEL(gated_gradient) {
  EXPECT("fffff");
  const int64_t rows = shapes[0][0], size = shapes[0][1];
  ROWS for (int64_t i = 0; i < rows; i++) {
    Floats gate = in(data, 0) + i * size, up = in(data, 1) + i * size, gradient = in(data, 2) + i * size;
    Result dgate = out(data, 3) + i * size, dup = out(data, 4) + i * size;
    EACH for (int64_t j = 0; j < size; j++) {
      const float s = sigmoid(gate[j]), silu = gate[j] * s;
      dgate[j] = gradient[j] * up[j] * (s + silu - silu * s);
      dup[j] = gradient[j] * silu;
    }
  }
  return 0;
}

// x (B, S, H, C), cos and sin alike -> rotated, (B, H, S, C)
KERNEL(rotate) {
  EXPECT("ffff");
  const int64_t batch = shapes[0][0], length = shapes[0][1], heads = shapes[0][2], size = shapes[0][3], half = size / 2;
  ROWS for (int64_t i = 0; i < batch * heads * length; i++) {
    const int64_t b = i / (heads * length), h = i / length % heads, from = ((b * length + i % length) * heads + h) * size;
    Floats x = in(data, 0) + from, cos = in(data, 1) + from, sin = in(data, 2) + from;
    Result y = out(data, 3) + i * size;
    EACH for (int64_t j = 0; j < half; j++) {
      y[j] = x[j] * cos[j] + x[j + half] * sin[j];
      y[j + half] = x[j + half] * cos[j + half] + x[j] * sin[j + half];
    }
  }
  return 0;
}

// gradient (B, H, S, C), cos and sin (B, S, H, C) -> (B, S, H, C)
KERNEL(rotate_gradient) {
  EXPECT("ffff");
  const int64_t batch = shapes[1][0], length = shapes[1][1], heads = shapes[1][2], size = shapes[1][3], half = size / 2;
  ROWS for (int64_t i = 0; i < batch * heads * length; i++) {
    const int64_t b = i / (heads * length), h = i / length % heads, to = ((b * length + i % length) * heads + h) * size;
    Floats y = in(data, 0) + i * size, cos = in(data, 1) + to, sin = in(data, 2) + to;
    Result x = out(data, 3) + to;
    EACH for (int64_t j = 0; j < half; j++) {
      x[j] = y[j] * cos[j] + y[j + half] * sin[j + half];
      x[j + half] = y[j + half] * cos[j + half] + y[j] * sin[j];
    }
  }
  return 0;
}

// x (B, X, Y, C) -> (B, Y, X, C)
KERNEL(swap) {
  EXPECT("ff");
  const int64_t batch = shapes[0][0], inner = shapes[0][1], outer = shapes[0][2], size = shapes[0][3];
  ROWS for (int64_t i = 0; i < batch * outer * inner; i++) {
    const int64_t b = i / (outer * inner), y = i / inner % outer;
    const float* from = in(data, 0) + ((b * inner + i % inner) * outer + y) * size;
    memcpy(out(data, 1) + i * size, from, size * sizeof(float));
  }
  return 0;
}

// scores (M, G*n, m), positions of queries (B, n) and keys (B, m), their segments, window (1) -> probabilities.
// A query sees keys of its segment up to its own position, with a window the last so many; a row of
// segment 0, or one that sees nothing, is all zeros.
KERNEL(masked_softmax) {
  EXPECT("fiiiiif");
  const int64_t products = shapes[0][0], rows = shapes[0][1], keys = shapes[0][2];
  const int64_t batch = shapes[1][0], queries = shapes[1][1], groups = products / batch;
  const int32_t window = ints(data, 5)[0] > 0 ? ints(data, 5)[0] : INT32_MAX;
  // The mask without heads, and per query the range of keys outside of which nothing is seen.
  std::vector<int32_t> seen(batch * queries * keys, 0), first(batch * queries), stop(batch * queries);
  ROWS for (int64_t query = 0; query < batch * queries; query++) {
    const int32_t position = ints(data, 1)[query], segment = ints(data, 3)[query], before = position - window;
    Ints positions = ints(data, 2) + query / queries * keys, segments = ints(data, 4) + query / queries * keys;
    int32_t* __restrict mask = seen.data() + query * keys;
    if (segment != 0)
      EACH for (int64_t j = 0; j < keys; j++)
        mask[j] = (positions[j] <= position) & (positions[j] > before) & (segments[j] == segment);
    int64_t from = 0, to = keys;
    while (to > 0 && !mask[to - 1]) to--;
    while (from < to && !mask[from]) from++;
    first[query] = from, stop[query] = to;
  }
  ROWS for (int64_t i = 0; i < products * rows; i++) {
    const int64_t query = i / rows / groups * queries + i % rows % queries, from = first[query], to = stop[query];
    Ints mask = seen.data() + query * keys;
    Floats score = in(data, 0) + i * keys;
    Result p = out(data, 6) + i * keys;
    std::fill(p, p + from, 0.0f);
    std::fill(p + to, p + keys, 0.0f);
    float largest = -INFINITY, sum = 0;
    _Pragma("omp simd reduction(max : largest)") for (int64_t j = from; j < to; j++) {
      p[j] = mask[j] ? score[j] : -INFINITY;
      largest = p[j] > largest ? p[j] : largest;
    }
    SUM for (int64_t j = from; j < to; j++) {
      p[j] = fast_exp(p[j] - largest);
      sum += p[j];
    }
    const float inverse = 1.0f / sum;
    EACH for (int64_t j = from; j < to; j++) p[j] *= inverse;
  }
  return 0;
}

// probabilities (M, R, m), their gradient -> gradient of the scores
KERNEL(softmax_gradient) {
  EXPECT("fff");
  const int64_t rows = shapes[0][0] * shapes[0][1], keys = shapes[0][2];
  ROWS for (int64_t i = 0; i < rows; i++) {
    Floats p = in(data, 0) + i * keys, gradient = in(data, 1) + i * keys;
    Result y = out(data, 2) + i * keys;
    float sum = 0;
    SUM for (int64_t j = 0; j < keys; j++) sum += p[j] * gradient[j];
    EACH for (int64_t j = 0; j < keys; j++) y[j] = p[j] * (gradient[j] - sum);
  }
  return 0;
}

// logits (N, V), labels (N) below 0 for none -> cross entropy (N), its gradient (N, V); zeros for none
KERNEL(cross_entropy) {
  EXPECT("fiff");
  const int64_t rows = shapes[0][0], size = shapes[0][1];
  Ints labels = ints(data, 1);
  for (int64_t i = 0; i < rows; i++)
    if (labels[i] >= size) return 1;
  ROWS for (int64_t i = 0; i < rows; i++) {
    Floats x = in(data, 0) + i * size;
    Result y = out(data, 3) + i * size;
    if (labels[i] < 0) {
      std::fill(y, y + size, 0.0f);
      out(data, 2)[i] = 0;
      continue;
    }
    float largest = x[0], sum = 0;
    _Pragma("omp simd reduction(max : largest)") for (int64_t j = 0; j < size; j++)
      largest = x[j] > largest ? x[j] : largest;
    SUM for (int64_t j = 0; j < size; j++) {
      y[j] = fast_exp(x[j] - largest);
      sum += y[j];
    }
    const float inverse = 1.0f / sum;
    EACH for (int64_t j = 0; j < size; j++) y[j] *= inverse;
    y[labels[i]] -= 1.0f;
    out(data, 2)[i] = std::log(sum) + largest - x[labels[i]];
  }
  return 0;
}
