"""The device functions that emitted CUDA C calls, by name; a program carries those that it uses. No header is needed."""

from __future__ import annotations

import re

# In order: later ones may call earlier ones.
FUNCTIONS = {
    "minimum": """template <typename T> __device__ __forceinline__ T minimum(T a, T b) { return b < a ? b : a; }""",
    "maximum": """template <typename T> __device__ __forceinline__ T maximum(T a, T b) { return b > a ? b : a; }""",
    "magnitude": """template <typename T> __device__ __forceinline__ T magnitude(T a) { return a < 0 ? -a : a; }""",
    "floordiv": """// Division that rounds toward minus infinity.
template <typename T> __device__ __forceinline__ T floordiv(T a, T b) {
  T q = a / b;
  return (a % b != 0 && (a % b < 0) != (b < 0)) ? q - 1 : q;
}""",
    "floormod": """template <typename T> __device__ __forceinline__ T floormod(T a, T b) {
  T r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}""",
    "truncated": """// Toward zero; what is not finite becomes 0.
template <typename T, typename F> __device__ __forceinline__ T truncated(F x) { return x - x == 0 ? (T)(long long)x : (T)0; }""",
    "sigmoid": """template <typename T> __device__ __forceinline__ T sigmoid(T x) { return (T)1 / ((T)1 + (T)exp(-x)); }
template <> __device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }""",
    "copy_async_wait": """// All 16 bytes that this thread copies without waiting are there.
__device__ __forceinline__ void copy_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }""",
    "copy_async": """// 16 bytes from global to shared memory, without waiting.
__device__ __forceinline__ void copy_async(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}""",
    "float16_value": """__device__ __forceinline__ float float16_value(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}""",
    "float16_bits": """__device__ __forceinline__ unsigned short float16_bits(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}""",
    "bfloat16_value": """__device__ __forceinline__ float bfloat16_value(unsigned short bits) {
  return __uint_as_float((unsigned)bits << 16);
}""",
    "bfloat16_bits": """// To the nearest, ties to even.
__device__ __forceinline__ unsigned short bfloat16_bits(float x) {
  unsigned bits = __float_as_uint(x);
  return x != x ? 0x7fc0 : (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}""",
}


def prelude(text: str) -> str:
    """The functions that `text` calls."""
    return "\n".join(code for name, code in FUNCTIONS.items() if re.search(rf"\b{name}\b", text))
