// A directory of pairs for tests, without SentencePiece.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "data/pair_files.h"
#include "data/record_writer.h"
#include "tests/support/status_matchers.h"

namespace penstock {

using PiecePair = std::pair<std::vector<int32_t>, std::vector<int32_t>>;

// 0 is padding, 1 unknown, 2 the beginning, 3 the end; "\u2581" and the number's letter is any other piece: "\u2581e" is 4.
inline void WritePairDirectory(Files& files, const std::string& directory,
                               const std::vector<PiecePair>& pairs, int64_t pieces) {
  auto writer = RecordWriter::Create(files, directory, {}, 1 << 10,
                                     {{kPairSequences[0], "I32"}, {kPairSequences[1], "I32"}});
  ASSERT_THAT(writer, IsOk());
  const auto bytes = [](const std::vector<int32_t>& values) {
    return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                               values.size() * sizeof(int32_t));
  };
  std::string list = "<pad>\t0\n<unk>\t0\n<s>\t0\n</s>\t0\n";
  for (int64_t piece = 4; piece < pieces; ++piece) {
    absl::StrAppend(&list, "\u2581", std::string(1, static_cast<char>('a' + piece % 26)), "\t-1\n");
  }
  const absl::StatusOr<PieceList> parsed = PieceList::Parse(list);
  ASSERT_THAT(parsed, IsOk());
  std::string sources, targets;
  for (const auto& [source, target] : pairs) {
    ASSERT_THAT((*writer)->Add({bytes(source), bytes(target)}), IsOk());
    absl::StrAppend(&sources, parsed->TextOf(source), "\n");
    absl::StrAppend(&targets, parsed->TextOf(target), "\n");
  }
  for (const auto& [name, content] : std::vector<std::pair<std::string, std::string>>{
           {kPairsFile, PrintPairFacts({.vocabulary = parsed->numbers()})},
           {kPieceListFile, list},
           {kSourceTextFile, sources},
           {kTargetTextFile, targets}}) {
    ASSERT_THAT((*writer)->AddFile(name, content), IsOk());
  }
  ASSERT_THAT((*writer)->Finish(), IsOk());
}

}  // namespace penstock
