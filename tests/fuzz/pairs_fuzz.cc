// What a directory of pairs says of its vocabulary: pairs.json, and the list of pieces, whose text any numbers may ask for.
#include <limits>
#include <string>
#include <vector>

#include "data/pair_files.h"
#include "data/piece_list.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock {
namespace {

void CheckPieceNumbers(const PieceNumbers& numbers) {
  for (const int32_t number : {numbers.padding, numbers.unknown, numbers.bos, numbers.eos}) {
    PENSTOCK_CHECK(number >= 0 && number < numbers.pieces);
  }
}

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(pairs) {
  using namespace penstock;
  const absl::string_view text = FuzzBytes(data, size).rest();
  if (const absl::StatusOr<PairFacts> facts = ParsePairFacts(text); facts.ok()) {
    FuzzAccepted();
    CheckPieceNumbers(facts->vocabulary);
    const absl::StatusOr<PairFacts> again = ParsePairFacts(PrintPairFacts(*facts));
    PENSTOCK_CHECK(again.ok() && again->vocabulary == facts->vocabulary &&
                   again->counts == facts->counts);
  }
  if (const absl::StatusOr<PieceList> list = PieceList::Parse(text); list.ok()) {
    FuzzAccepted();
    CheckPieceNumbers(list->numbers());
    std::vector<int32_t> pieces = {-1, std::numeric_limits<int32_t>::min(),
                                   std::numeric_limits<int32_t>::max()};
    for (int32_t piece = 0; piece <= list->numbers().pieces; ++piece) pieces.push_back(piece);
    PENSTOCK_CHECK(list->TextOf(pieces).size() <= 2 * text.size());
  }
  return 0;
}
