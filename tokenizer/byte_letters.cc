#include "tokenizer/byte_letters.h"

#include <array>

#include "tokenizer/characters.h"

namespace penstock {
namespace {

constexpr int kLetters = 0x144;

struct Alphabet {
  std::array<char32_t, 256> letter_of{};
  std::array<int, kLetters> byte_of{};
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int& byte : alphabet.byte_of) byte = -1;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_seen =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const char32_t letter = is_seen ? static_cast<char32_t>(byte) : next++;
    alphabet.letter_of[byte] = letter;
    alphabet.byte_of[letter] = byte;
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

char32_t LetterOfByte(uint8_t byte) { return kAlphabet.letter_of[byte]; }

std::string LettersOfBytes(absl::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) AppendCharacter(LetterOfByte(static_cast<uint8_t>(byte)), letters);
  return letters;
}

std::optional<std::string> BytesOfLetters(absl::string_view letters) {
  std::string bytes;
  while (!letters.empty()) {
    const Character letter = ReadCharacter(letters);
    if (letter.code >= kLetters || kAlphabet.byte_of[letter.code] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte_of[letter.code]);
    letters.remove_prefix(letter.bytes);
  }
  return bytes;
}

}  // namespace penstock
