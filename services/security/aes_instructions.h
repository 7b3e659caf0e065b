// Whether this CPU has the instructions that make AES-GCM fast, the cipher of nearly every TLS connection. Without them a
// stream of tensors over TLS is several times slower than with them, and takes most of a core.
#pragma once

namespace penstock {

enum class AesInstructions {
  kUnknown,  // no x86
  kNone,
  kAesNi,  // one block of 16 bytes at a time
  kVaes,   // several
};

AesInstructions AesInstructionsOfThisCpu();

// For a log: what to expect of TLS here. "TLS: this CPU has VAES".
const char* TextOf(AesInstructions instructions);

}  // namespace penstock
