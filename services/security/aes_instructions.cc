#include "services/security/aes_instructions.h"

namespace penstock {

AesInstructions AesInstructionsOfThisCpu() {
#if defined(__x86_64__)
  const bool has_aes = __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
  const bool has_vaes = __builtin_cpu_supports("vaes") && __builtin_cpu_supports("vpclmulqdq");
  return !has_aes   ? AesInstructions::kNone
         : has_vaes ? AesInstructions::kVaes
                    : AesInstructions::kAesNi;
#else
  return AesInstructions::kUnknown;
#endif
}

const char* TextOf(AesInstructions instructions) {
  switch (instructions) {
    case AesInstructions::kUnknown:
      return "TLS: it is not known whether this CPU has instructions for AES";
    case AesInstructions::kNone:
      return "TLS: this CPU has no instructions for AES, so tensors to other hosts take several "
             "times as long as on a CPU with AES-NI";
    case AesInstructions::kAesNi:
      return "TLS: this CPU has AES-NI";
    case AesInstructions::kVaes:
      return "TLS: this CPU has VAES";
  }
  return "";
}

}  // namespace penstock
