// Tokenizes a text for compare_tokenizers.py: tokenize TOKENIZER TEXT IDS [DECODED]
// Or learns a vocabulary from it:      tokenize --train SIZE TEXT TOKENIZER
//
// A `.model` gets the text line by line, as SentencePiece's programs do. Writes the ids as i32 to IDS, the decoded text to DECODED, and prints the seconds of the fastest of three encodings.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "tokenizer/byte_pair_training.h"
#include "tokenizer/tokenizer.h"

namespace penstock {
namespace {

absl::StatusOr<std::vector<int32_t>> EncodeLines(const Tokenizer& tokenizer,
                                                 absl::string_view text) {
  std::vector<int32_t> ids;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const auto encoded = tokenizer.Encode(line);
    if (!encoded.ok()) return encoded;
    ids.insert(ids.end(), encoded->begin(), encoded->end());
  }
  return ids;
}

int Train(char** argv) {
  const auto text = RealFiles().Read(argv[3], int64_t{1} << 30);
  if (!text.ok()) return 1;
  const auto began = std::chrono::steady_clock::now();
  const auto json = TrainBytePairs(*text, {.vocabulary_size = std::atoll(argv[2])});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (!json.ok()) {
    std::fprintf(stderr, "%s\n", std::string(json.status().message()).c_str());
    return 1;
  }
  std::ofstream(argv[4], std::ios::binary) << *json;
  std::printf("%.6f\n", took.count());
  return 0;
}

int Main(int argc, char** argv) {
  if (argc == 5 && absl::string_view(argv[1]) == "--train") return Train(argv);
  if (argc < 4) {
    std::fprintf(stderr, "usage: tokenize TOKENIZER TEXT IDS [DECODED]\n");
    return 2;
  }
  const auto tokenizer = LoadTokenizer(RealFiles(), argv[1]);
  const auto text = RealFiles().Read(argv[2], int64_t{1} << 30);
  if (!tokenizer.ok() || !text.ok()) {
    const absl::Status& status = tokenizer.ok() ? text.status() : tokenizer.status();
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  double seconds = 1e9;
  absl::StatusOr<std::vector<int32_t>> ids;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto began = std::chrono::steady_clock::now();
    ids = absl::EndsWith(argv[1], ".model") ? EncodeLines(**tokenizer, *text)
                                            : (*tokenizer)->Encode(*text);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    seconds = std::min(seconds, took.count());
  }
  if (!ids.ok()) {
    std::fprintf(stderr, "%s\n", std::string(ids.status().message()).c_str());
    return 1;
  }
  std::ofstream(argv[3], std::ios::binary)
      .write(reinterpret_cast<const char*>(ids->data()),
             static_cast<std::streamsize>(ids->size() * sizeof(int32_t)));
  if (argc > 4) {
    const auto decoded = (*tokenizer)->Decode(*ids, SpecialTokens::kShow);
    if (!decoded.ok()) {
      std::fprintf(stderr, "%s\n", std::string(decoded.status().message()).c_str());
      return 1;
    }
    std::ofstream(argv[4], std::ios::binary) << *decoded;
  }
  std::printf("%.6f\n", seconds);
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
