#include "job/yaml/yaml_message.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/random.h"
#include "base/utf8.h"
#include "penstock/v1/cluster.pb.h"
#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sets every field of a message to a random value and writes the same as YAML. Of a choice it takes
// one kind at random, so several rounds see them all.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed, 2) {}

  std::string Fill(Message& message) {
    const auto& descriptor = *message.GetDescriptor();
    std::string yaml = "{";
    for (int i = 0; i < descriptor.field_count(); ++i) {
      const FieldDescriptor& field = *descriptor.field(i);
      if (field.real_containing_oneof() != nullptr && Chosen(field) != &field) {
        continue;
      }
      const std::string value = field.is_repeated() ? List(field, message) : One(field, message);
      absl::StrAppend(&yaml, yaml == "{" ? "" : ", ", field.name(), ": ", value);
    }
    chosen_.clear();
    return yaml + "}";
  }

 private:
  const FieldDescriptor* Chosen(const FieldDescriptor& field) {
    const auto* choice = field.real_containing_oneof();
    auto& chosen = chosen_[choice];
    if (chosen == nullptr) {
      chosen = choice->field(static_cast<int>(random_.Below(choice->field_count())));
    }
    return chosen;
  }

  std::string List(const FieldDescriptor& field, Message& message) {
    std::string yaml = "[";
    for (int i = 0; i < 3; ++i) {
      absl::StrAppend(&yaml, i == 0 ? "" : ", ", One(field, message));
    }
    return yaml + "]";
  }

  int64_t Integer() {
    return static_cast<int64_t>(random_.Next()) - static_cast<int64_t>(random_.Next());
  }

  template <typename Set, typename Add, typename Value>
  std::string Put(const FieldDescriptor& field, Message& message, Set set, Add add, Value value,
                  const std::string& yaml) {
    const Reflection& reflection = *message.GetReflection();
    field.is_repeated() ? (reflection.*add)(&message, &field, value)
                        : (reflection.*set)(&message, &field, value);
    return yaml;
  }
#define PENSTOCK_PUT(Type, value, yaml) \
  Put(field, message, &Reflection::Set##Type, &Reflection::Add##Type, value, yaml)

  std::string One(const FieldDescriptor& field, Message& message) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        auto outer = std::move(chosen_);
        chosen_.clear();
        std::string yaml = Fill(field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                                    : *reflection.MutableMessage(&message, &field));
        chosen_ = std::move(outer);
        return yaml;
      }
      case FieldDescriptor::CPPTYPE_INT32: {
        const int32_t value = static_cast<int32_t>(random_.Next());
        return PENSTOCK_PUT(Int32, value, absl::StrCat(value));
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        const int64_t value = Integer();
        return PENSTOCK_PUT(Int64, value, absl::StrCat(value));
      }
      case FieldDescriptor::CPPTYPE_UINT64: {
        const uint64_t value = std::numeric_limits<uint64_t>::max() - random_.Next();
        return PENSTOCK_PUT(UInt64, value, absl::StrCat(value));
      }
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        const double value = random_.Normal() * 1e-5;
        return PENSTOCK_PUT(Double, value, absl::StrFormat("%.17g", value));
      }
      case FieldDescriptor::CPPTYPE_BOOL: {
        const bool value = random_.Below(2) == 1;
        return PENSTOCK_PUT(Bool, value, value ? "true" : "false");
      }
      case FieldDescriptor::CPPTYPE_ENUM: {
        const auto* value = field.enum_type()->value(
            static_cast<int>(random_.Below(field.enum_type()->value_count())));
        return PENSTOCK_PUT(Enum, value, value->name());
      }
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string value = absl::StrCat("text ", random_.Next(), ": 'quoted' \xc3\xa9");
        const Reflection& r = reflection;
        field.is_repeated() ? r.AddString(&message, &field, value)
                            : r.SetString(&message, &field, value);
        return absl::StrCat("\"", value, "\"");
      }
      case FieldDescriptor::CPPTYPE_UINT32:
      case FieldDescriptor::CPPTYPE_FLOAT:
        ADD_FAILURE() << field.full_name() << " has a type without a generator";
    }
    return "~";
  }
#undef PENSTOCK_PUT

  RandomStream random_;
  std::map<const google::protobuf::OneofDescriptor*, const FieldDescriptor*> chosen_;
};

template <typename T>
void ExpectRoundTrip(uint64_t seed) {
  T expected, actual;
  const std::string yaml = Generator(seed).Fill(expected);
  YamlPositions positions;
  ASSERT_THAT(ReadYamlMessage(yaml, "generated.yaml", actual, positions), IsOk()) << yaml;
  EXPECT_TRUE(MessageDifferencer::Equals(expected, actual))
      << yaml << "\n"
      << expected.DebugString() << actual.DebugString();
}

TEST(ReadYamlMessage, EveryFieldOfAJob_IsReadable) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    ExpectRoundTrip<v1::JobSpec>(seed);
  }
}

// Lists of messages and enums, which a job does not have.
TEST(ReadYamlMessage, EveryFieldOfOtherMessages_IsReadable) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    ExpectRoundTrip<v1::JobResult>(seed);
    ExpectRoundTrip<v1::ListJobsResponse>(seed);
    ExpectRoundTrip<v1::ListWorkersResponse>(seed);
    ExpectRoundTrip<v1::PrepareRunRequest>(seed);
  }
}

TEST(ReadYamlMessage, ListOfOneValue_MayBeWrittenAsTheValue) {
  for (const char* text : {"pipeline: {replicas: 3}", "pipeline: {replicas: [3]}"}) {
    v1::JobSpec spec;
    YamlPositions positions;
    ASSERT_THAT(ReadYamlMessage(text, "f.yaml", spec, positions), IsOk());
    ASSERT_EQ(spec.pipeline().replicas_size(), 1);
    EXPECT_EQ(spec.pipeline().replicas(0), 3);
  }
}

TEST(ReadYamlMessage, AutoForAnOptionalNumber_LeavesItOut) {
  v1::JobSpec spec;
  YamlPositions positions;
  ASSERT_THAT(
      ReadYamlMessage("pipeline: {method: auto, stages: auto}", "job.yaml", spec, positions),
      IsOk());
  EXPECT_FALSE(spec.pipeline().has_stages());
  EXPECT_EQ(spec.pipeline().method(), "auto");  // text is what it says
  for (const char* text : {"training: {steps: auto}", "pipeline: {stages: \"auto\"}"}) {
    v1::JobSpec other;
    YamlPositions places;
    EXPECT_THAT(ReadYamlMessage(text, "job.yaml", other, places),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("whole number")));
  }
}

TEST(ReadYamlMessage, NameOfTheVersionBefore_IsReadWithANote) {
  v1::JobSpec spec;
  YamlPositions positions;
  std::vector<std::string> notes;
  ASSERT_THAT(ReadYamlMessage("training:\n  device_graphs: \"on\"\n  seed: 3\n", "f.yaml", spec,
                              positions, &notes),
              IsOk());
  EXPECT_EQ(spec.training().cuda_graphs(), "on");
  EXPECT_EQ(positions["training.cuda_graphs"], "f.yaml:2:3") << "so that a check finds its place";
  EXPECT_THAT(notes, ElementsAre("f.yaml:2:3: training.device_graphs is called "
                                 "training.cuda_graphs now; the next version will not know the old "
                                 "name"));
  v1::JobSpec average;
  YamlPositions others;
  ASSERT_THAT(
      ReadYamlMessage("training: {staleness: {motion_decay: 0.5}}", "f.yaml", average, others),
      IsOk());
  EXPECT_EQ(average.training().staleness().momentum_average_decay(), 0.5);
  v1::JobSpec twice;
  YamlPositions places;
  EXPECT_THAT(ReadYamlMessage("training: {device_graphs: \"on\", cuda_graphs: \"on\"}", "f.yaml",
                              twice, places),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("training.cuda_graphs: given twice, first at f.yaml:1:12")));
}

TEST(ReadYamlMessage, Positions_CountFromOne) {
  v1::JobSpec spec;
  YamlPositions positions;
  ASSERT_THAT(ReadYamlMessage("name: a\ntraining:\n  seed: 3\n", "f.yaml", spec, positions),
              IsOk());
  EXPECT_EQ(positions["name"], "f.yaml:1:1");
  EXPECT_EQ(positions["training.seed"], "f.yaml:3:3");
}

absl::Status Read(const std::string& text) {
  v1::JobSpec spec;
  YamlPositions positions;
  return ReadYamlMessage(text, "f.yaml", spec, positions);
}

TEST(ReadYamlMessage, AliasBomb_IsRefusedAtOnce) {
  std::string text = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c <= 'z'; ++c) {
    const char p = static_cast<char>(c - 1);
    absl::StrAppend(&text, std::string(1, c), ": &", std::string(1, c), " [*", std::string(1, p),
                    ",*", std::string(1, p), ",*", std::string(1, p), "]\n");
  }
  EXPECT_THAT(Read(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("f.yaml:1:")));
}

TEST(ReadYamlMessage, TooDeep_IsRefused) {
  for (const int depth : {17, 100, 5000, 200000}) {
    EXPECT_THAT(Read("a: " + std::string(depth, '[')),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("f.yaml")));
    EXPECT_THAT(Read("a: " + std::string(depth, '[') + std::string(depth, ']')),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("f.yaml")));
  }
}

TEST(ReadYamlMessage, TooLarge_IsRefused) {
  EXPECT_THAT(Read(std::string(kYamlBytesMax + 1, ' ')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 1048576")));
}

TEST(ReadYamlMessage, NotUtf8_IsRefusedWithThePlace) {
  for (const std::string bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82",
                                "\xe0\x80\x80", "\x80"}) {
    EXPECT_THAT(Read("name: " + bad),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("f.yaml: byte 6")));
  }
  EXPECT_THAT(Read(std::string("name: a\0b", 9)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte 7 (0x00)")));
  EXPECT_THAT(Read("name: \xf0\x9f\x98\x80"), IsOk());
}

// Whatever happens to a good file, the reader answers: no crash, no exception, no hang.
TEST(ReadYamlMessage, RandomDamage_NeverCrashes) {
  RandomStream random(11, 3);
  const std::string alphabet = "{}[]:,-&*!|>'\"%@`#? \n\t~0123abc\\";
  for (int trial = 0; trial < 20000; ++trial) {
    std::string text = kGoodJobYaml;
    const int edits = 1 + static_cast<int>(random.Below(4));
    for (int edit = 0; edit < edits; ++edit) {
      const size_t place = random.Below(text.size());
      const char c = alphabet[random.Below(alphabet.size())];
      switch (random.Below(3)) {
        case 0:
          text[place] = c;
          break;
        case 1:
          text.insert(place, 1, c);
          break;
        default:
          text.erase(place, 1 + random.Below(20));
      }
    }
    const absl::Status status = Read(text);
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  }
}

TEST(ReadYamlMessage, LongTextInAMessage_EndsBetweenTwoLetters) {
  std::string text = "x";
  for (int i = 0; i < 25; ++i) text += "\u00e4";
  const absl::Status status = Read("training: {steps: " + text + "}");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("...")));
  EXPECT_EQ(FindInvalidUtf8(status.message()), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace penstock
