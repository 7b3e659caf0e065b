#include "planner/graph/pipedream_profile.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/files.h"
#include "tests/planner/graph/planner_test_support.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kGood[] =
    "node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, "
    "activation_size=0.0, parameter_size=0.000\n"
    "node2 -- LSTM(2048, 1024) -- forward_compute_time=3.190, backward_compute_time=5.348, "
    "activation_size=[6291456.0; 131072.0], parameter_size=50364416.000 -- stage_id=3\n"
    "node3 -- __getitem__(1) -- forward_compute_time=0.000, backward_compute_time=0.000, "
    "activation_size=131072.0, parameter_size=0.000\n"
    "\tnode1 -- node2\n"
    "\tnode2 -- node3";

std::string ReadProfile(const std::string& file) {
  return *RealFiles().Read(
      JoinPath(PENSTOCK_SOURCE_DIR, absl::StrCat("tests/planner/graph/profiles/", file)), 1 << 20);
}

const char* const kPublished[] = {
    "alexnet.txt",   "densenet121.txt",  "gnmt.txt",         "gnmt_large.txt",
    "resnet101.txt", "inception_v3.txt", "resnet18.txt",     "inception_v3_compressed.txt",
    "resnet50.txt",  "nasnetalarge.txt", "resnext50.txt",    "nasnetamobile.txt",
    "vgg16.txt",     "resnext101.txt",   "squeezenet1_0.txt"};

TEST(PipeDreamProfile, ListsAndStages_AreRead) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PipeDreamProfile profile, ParsePipeDreamProfile(kGood));
  const LayerNode& lstm = profile.graph.nodes[1];
  EXPECT_EQ(lstm.description, "LSTM(2048, 1024)");
  EXPECT_DOUBLE_EQ(lstm.forward_s, 3.190e-3);
  EXPECT_DOUBLE_EQ(lstm.backward_s, 5.348e-3);
  EXPECT_EQ(lstm.activation_bytes, 6291456.0 + 131072.0);
  EXPECT_EQ(lstm.parameter_bytes, 50364416.0);
  EXPECT_THAT(profile.output_bytes[1], ElementsAre(6291456.0, 131072.0));
  EXPECT_EQ(profile.stage_of[1], 3);
  EXPECT_EQ(profile.stage_of[0], std::nullopt);
  EXPECT_EQ(FormatPipeDreamProfile(profile), kGood);
}

TEST(PipeDreamProfile, PublishedFiles_AreReadAgainAsTheyWereWritten) {
  for (const char* file : kPublished) {
    SCOPED_TRACE(file);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const PipeDreamProfile profile,
                                  ParsePipeDreamProfile(ReadProfile(file)));
    EXPECT_THAT(ParsePipeDreamProfile(FormatPipeDreamProfile(profile)), IsOkAndHolds(profile));
  }
}

// The older files print sizes with three decimals.
TEST(PipeDreamProfile, FilesOfPipeDreamsNewestWriter_AreWrittenByteForByte) {
  for (const char* file : {"gnmt.txt", "gnmt_large.txt", "inception_v3_compressed.txt"}) {
    SCOPED_TRACE(file);
    const std::string text = ReadProfile(file);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const PipeDreamProfile profile, ParsePipeDreamProfile(text));
    EXPECT_TRUE(FormatPipeDreamProfile(profile) == text);
  }
}

TEST(PipeDreamProfile, SpacesForTabsAndBlankLines_MeanTheSame) {
  const std::string loose =
      absl::StrCat("\n", absl::StrReplaceAll(kGood, {{"\t", "    "}, {"\n", "\r\n\n"}}), "\n\n");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PipeDreamProfile expected, ParsePipeDreamProfile(kGood));
  EXPECT_THAT(ParsePipeDreamProfile(loose), IsOkAndHolds(expected));
}

TEST(PipeDreamProfile, InputsAndUnreadItems_AreLeftOut) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PipeDreamProfile profile, ParsePipeDreamProfile(kGood));
  const PipeDreamProfile left = WithoutInputsAndUnreadItems(profile);
  ASSERT_EQ(left.graph.nodes.size(), 1u);
  EXPECT_EQ(left.graph.nodes[0].id, "node2");
  EXPECT_TRUE(left.graph.edges.empty());
  EXPECT_THAT(left.stage_of, ElementsAre(3));
}

struct BadText {
  const char* from;
  const char* to;
  const char* message;
};

TEST(PipeDreamProfile, BadLines_AreNamedWithLineAndNode) {
  const BadText texts[] = {
      {"\tnode2 -- node3", "\tnode2 -- node9", "line 5: the edge names node 'node9'"},
      {"\tnode2 -- node3", "\tnode2", "line 5: expected an edge"},
      {"\tnode2 -- node3", "\tnode2 -- node3 -- node1", "line 5: expected an edge"},
      {"node3 -- ", "node2 -- ", "line 3: node node2 is there already, on line 2"},
      {"node3 -- __getitem__(1) -- ", "node3 -- ", "line 3: expected a node"},
      {"=5.348", "=-5.348", "line 2: node node2: backward time must be"},
      {"=5.348", "=nan", "line 2: node node2: backward time must be"},
      {"=5.348", "=inf", "line 2: node node2: backward time must be"},
      {"=5.348", "=1e999", "line 2: node node2"},
      {"=5.348", "=five",
       "line 2: node node2: backward_compute_time: expected a number, got 'five'"},
      {"backward_compute_time=5.348", "time=5.348", "expected backward_compute_time=.."},
      {", parameter_size=50364416.000", "", "line 2: node node2: expected 'forward_compute_time"},
      {"131072.0]", "131072.0", "no closing ]"},
      {"[6291456.0; 131072.0]", "[]", "line 2: node node2: expected a number"},
      {"[6291456.0; 131072.0]", "[1e15; 1e15]", "line 2: node node2: activation size must be"},
      {"[6291456.0; 131072.0]", "[5.0; -1.0]", "line 2: node node2: an element"},
      {"stage_id=3", "stage_id=-3", "line 2: node node2: expected stage_id=N"},
      {"stage_id=3", "stage=3", "line 2: node node2: expected stage_id=N"},
      {"\tnode1 -- node2", "\tnode3 -- node2", "cycle"},
      {"node1 -- Input0", " -- Input0", "line 1: the edge names node"},
      {kGood, "", "no node"},
  };
  for (const BadText& bad : texts) {
    const std::string text = absl::StrReplaceAll(kGood, {{bad.from, bad.to}});
    EXPECT_THAT(ParsePipeDreamProfile(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(bad.message)))
        << bad.to;
  }
}

// Whatever the text, reading it ends with a profile that checks or with an error.
TEST(PipeDreamProfile, DamagedFiles_NeverCrash) {
  RandomStream random(5, 1);
  const std::string good = ReadProfile("gnmt.txt");
  int read = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = round % 3 == 0 ? kGood : good;
    for (uint64_t change = 0; change <= random.Below(4); ++change) {
      const size_t at = random.Below(text.size());
      switch (random.Below(4)) {
        case 0:
          text[at] = static_cast<char>(random.Below(256));
          break;
        case 1:
          text.erase(at, random.Below(40));
          break;
        case 2:
          text.insert(at, text.substr(random.Below(text.size()), random.Below(60)));
          break;
        default:
          text.insert(at, 1, " \t\n-=[];,."[random.Below(10)]);
      }
      if (text.empty()) text = " ";
    }
    const absl::StatusOr<PipeDreamProfile> profile = ParsePipeDreamProfile(text);
    if (!profile.ok()) {
      EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++read;
    EXPECT_THAT(CheckLayerGraph(profile->graph), IsOk());
    WithoutInputsAndUnreadItems(*profile);
  }
  EXPECT_GT(read, 0);  // some changes are harmless
}

}  // namespace
}  // namespace penstock
