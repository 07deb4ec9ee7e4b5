// Rounding to fp16 and bf16, and back.
#include <cmath>
#include <cstring>

#include "machine_calls.hpp"

namespace machine {

namespace {

float exact_from_half(u16 bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value;
  if (exponent == 31) {
    value = fraction ? NAN : INFINITY;
  } else {
    value = std::ldexp(static_cast<float>(fraction + (exponent ? 1024 : 0)), (exponent ? exponent : 1) - 25);
  }
  return bits >> 15 ? -value : value;
}

struct Halves {
  float of[65536];
  Halves() {
    for (u32 bits = 0; bits < 65536; ++bits) of[bits] = exact_from_half(static_cast<u16>(bits));
  }
};

const Halves halves;

}  // namespace

float from_half(u16 bits) { return halves.of[bits]; }

float from_bf16(u16 bits) {
  const u32 word = static_cast<u32>(bits) << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}

float from_e4m3(unsigned char bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  if ((bits & 127) == 127) return NAN;
  const float size = std::ldexp(static_cast<float>(fraction + (exponent ? 8 : 0)), (exponent ? exponent : 1) - 10);
  return bits >> 7 ? -size : size;
}

u16 to_half(float value) {
  const u16 sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7fff;
  const float size = std::fabs(value);
  if (size >= 65520.0f) return sign | 0x7c00;
  if (size == 0.0f) return sign;
  const int exponent = std::max(std::ilogb(size), -14);
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));  // to nearest even
  return static_cast<u16>(sign | (((exponent + 15) << 10) + steps - 1024));
}

unsigned char to_e4m3(float value) {
  const unsigned char sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return 0x7f;
  const float size = std::fmin(std::fabs(value), 448.0f);
  if (size == 0.0f) return sign;
  const int exponent = std::max(std::ilogb(size), -6);
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));  // to nearest even
  return static_cast<unsigned char>(sign | (((exponent + 7) << 3) + steps - 8));
}

u16 to_bf16(float value) {
  if (std::isnan(value)) return 0x7fff;
  u32 word;
  std::memcpy(&word, &value, 4);
  return static_cast<u16>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

}  // namespace machine

extern "C" unsigned short emulated_half(float value) { return machine::to_half(value); }
extern "C" unsigned short emulated_bf16(float value) { return machine::to_bf16(value); }
extern "C" float emulated_from_half(unsigned short bits) { return machine::from_half(bits); }
