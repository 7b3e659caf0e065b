#include "model/documents.h"

#include <gmock/gmock.h>

#include "model/families/gpt.h"
#include "model/families/llama.h"
#include "model/ops/list.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelGraph LlamaModel(bool qk_norm = false) {
  return *BuildLlama({.layers = 2,
                      .width = 8,
                      .heads = 2,
                      .hidden = 12,
                      .context = 6,
                      .vocabulary = 11,
                      .qk_norm = qk_norm});
}

TEST(SeparateDocuments, RopeAndAttention_ReadThePositions) {
  for (const bool qk_norm : {false, true}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph separate,
                                  SeparateDocuments(LlamaModel(qk_norm)));
    const int port = FindPositionsPort(separate);
    EXPECT_EQ(port, 2);
    EXPECT_EQ(separate.ports[port].type, (ValueType{DType::kI32, {6}}));
    int readers = 0;
    for (const Node& node : separate.nodes) {
      const bool reads = node.inputs.back() == port;
      EXPECT_EQ(reads, node.op == &ops::kRope || node.op == &ops::kAttention) << node.name;
      readers += reads ? 1 : 0;
      // What its op says of its inputs is what it said.
      const std::vector<ValueType> inputs = separate.InputTypes(node);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const OpResult result,
                                    node.op->infer({node.attributes, inputs}));
      EXPECT_EQ(result.output, node.output) << node.name;
    }
    EXPECT_EQ(readers, 2 * 3);
    EXPECT_EQ(separate.targets(), 1);
  }
}

TEST(JoinDocuments, GivesTheModelBack) {
  const ModelGraph model = LlamaModel();
  EXPECT_EQ(JoinDocuments(*SeparateDocuments(model)), model);
  EXPECT_EQ(JoinDocuments(model), model);
}

TEST(SeparateDocuments, ModelOfLearnedPositions_IsRefusedByItsNode) {
  const ModelGraph gpt =
      *BuildGpt({.layers = 1, .width = 8, .heads = 2, .context = 6, .vocabulary = 11});
  EXPECT_THAT(SeparateDocuments(gpt),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("embedding: gpt_embedding does not know where documents"),
                             HasSubstr("model.llama"))));
}

}  // namespace
}  // namespace penstock
