#include "job/profile/cluster_profile.h"

#include <gmock/gmock.h>

#include <cmath>

#include "google/protobuf/util/message_differencer.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kProfile[] = R"(devices:
  - device: fast
    timed_on: w1
    model:
      device: fast (1 thread)
      precision: f32
      optimizer: adamw
      time_steps: 16
      layers:
        - {layer: embedding, shape: table}
      shapes:
        - shape: table
          sizes:
            - samples: 2
              forward: {ms: 1}
            - samples: 4
              forward: {ms: 2}
  - device: slow
    timed_on: w2
    cached: true
    model:
      device: slow (1 thread)
      precision: f32
      optimizer: adamw
      time_steps: 16
      layers:
        - {layer: embedding, shape: table}
      shapes:
        - shape: table
          sizes:
            - samples: 2
              forward: {ms: 10}
            - samples: 4
              forward: {ms: 20}
workers:
  - {worker: w1, device: fast, memory_bytes: 1000, host: alpha}
  - {worker: w2, device: slow, host: beta}
links:
  - {from: w1, to: w2, latency_us: 12.5, bytes_per_second: 1e+09}
  - {from: w2, to: w1, latency_us: 13, bytes_per_second: 9e+08}
)";

v1::ClusterProfile Good() { return *ParseClusterProfile(kProfile, "cluster.yaml"); }

// The profile with the first or last such part of its text replaced.
absl::StatusOr<v1::ClusterProfile> With(const std::string& what, const std::string& by) {
  std::string text = kProfile;
  text.replace(text.find(what), what.size(), by);
  return ParseClusterProfile(text, "cluster.yaml");
}
absl::StatusOr<v1::ClusterProfile> WithLast(const std::string& what, const std::string& by) {
  std::string text = kProfile;
  text.replace(text.rfind(what), what.size(), by);
  return ParseClusterProfile(text, "cluster.yaml");
}

TEST(ClusterProfile, Printed_ReadsBackTheSame) {
  v1::ClusterProfile profile = Good();
  profile.mutable_links(0)->set_bytes_per_second(1e10 / 3.0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ClusterProfile again,
                                ParseClusterProfile(PrintClusterProfile(profile), "again.yaml"));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(again, profile));
}

TEST(ClusterProfile, WrongDevices_AreRefusedWithTheirPlace) {
  EXPECT_THAT(WithLast("- device: slow\n", "- device: fast\n"),
              StatusIs(kInvalid, HasSubstr("fast is there twice")));
  EXPECT_THAT(WithLast("ms: 20", "ms: -20"),
              StatusIs(kInvalid,
                       AllOf(StartsWith("cluster.yaml:34:"),
                             HasSubstr("devices[1].model.shapes[0].sizes[1].forward.ms: is -20"))));
  EXPECT_THAT(WithLast("time_steps: 16", "time_steps: 8"),
              StatusIs(kInvalid, AllOf(StartsWith("cluster.yaml:25:"),
                                       HasSubstr("devices[1].model.time_steps: differs"))));
  EXPECT_THAT(WithLast("layer: embedding", "layer: head"),
              StatusIs(kInvalid, HasSubstr("devices[1].model.layers: differs")));
  EXPECT_THAT(WithLast("samples: 4", "samples: 5"),
              StatusIs(kInvalid, HasSubstr("devices[1].model.shapes[0].sizes: differs")));
  EXPECT_THAT(WithLast("precision: f32", "precision: bf16"),
              StatusIs(kInvalid, HasSubstr("devices[1].model.precision: differs")));
  EXPECT_THAT(WithLast("optimizer: adamw", "optimizer: sgd"),
              StatusIs(kInvalid, HasSubstr("devices[1].model.optimizer: differs")));
  EXPECT_THAT(WithLast("device: slow, host", "device: fast, host"),
              StatusIs(kInvalid, HasSubstr("devices: has slow, which no worker has")));
}

TEST(ClusterProfile, WrongWorkers_AreRefusedWithTheirPlace) {
  EXPECT_THAT(With("worker: w2", "worker: w1"),
              StatusIs(kInvalid, HasSubstr("workers[1].worker: w1 is there twice")));
  EXPECT_THAT(With("worker: w2, ", ""),
              StatusIs(kInvalid, HasSubstr("workers[1].worker: is missing")));
  EXPECT_THAT(With("device: slow, host", "device: other, host"),
              StatusIs(kInvalid, AllOf(StartsWith("cluster.yaml:37:"),
                                       HasSubstr("other is none of `devices`"))));
  EXPECT_THAT(With("memory_bytes: 1000", "memory_bytes: -1"),
              StatusIs(kInvalid, HasSubstr("workers[0].memory_bytes: is -1")));
  EXPECT_THAT(With("memory_bytes: 1000", "offload_bytes_per_second: -5"),
              StatusIs(kInvalid, HasSubstr("workers[0].offload_bytes_per_second: is -5")));
  EXPECT_THAT(With(", host: beta", ""),
              StatusIs(kInvalid, HasSubstr("workers[1].host: is missing")));
}

TEST(ClusterProfile, WrongLinks_AreRefusedWithTheirPlace) {
  EXPECT_THAT(With("from: w2", "from: w3"),
              StatusIs(kInvalid, AllOf(StartsWith("cluster.yaml:40:"),
                                       HasSubstr("links[1].from: w3 is none of `workers`"))));
  EXPECT_THAT(With("to: w1", "to: w3"), StatusIs(kInvalid, HasSubstr("links[1].to: w3 is none")));
  EXPECT_THAT(With("from: w2, to: w1", "from: w2, to: w2"),
              StatusIs(kInvalid, HasSubstr("links[1].to: w2 is where")));
  EXPECT_THAT(With("from: w2, to: w1", "from: w1, to: w2"),
              StatusIs(kInvalid, HasSubstr("links[1]: from w1 to w2 is there twice")));
  EXPECT_THAT(With("  - {from: w2, to: w1, latency_us: 13, bytes_per_second: 9e+08}\n", ""),
              StatusIs(kInvalid, HasSubstr("links: lacks the one from w2 to w1")));
  EXPECT_THAT(With("latency_us: 13", "latency_us: -1"),
              StatusIs(kInvalid, HasSubstr("links[1].latency_us: is -1")));
  EXPECT_THAT(With("9e+08", ".inf"), StatusIs(kInvalid, HasSubstr("links[1].bytes_per_second")));
  EXPECT_THAT(With("9e+08", "0"),
              StatusIs(kInvalid, HasSubstr("links[1].bytes_per_second: is 0; expected more")));
}

TEST(ClusterProfile, EmptyOrOfAModelAlone_IsRefused) {
  EXPECT_THAT(ParseClusterProfile("", "none.yaml"), StatusIs(kInvalid, HasSubstr("is empty")));
  EXPECT_THAT(ParseClusterProfile("time_steps: 16\n", "model.yaml"),
              StatusIs(kInvalid, StartsWith("model.yaml:1:1: time_steps: ")));
  v1::ClusterProfile profile = Good();
  profile.clear_workers();
  EXPECT_THAT(CheckClusterProfile(profile), StatusIs(kInvalid, HasSubstr("workers: has none")));
}

TEST(ReadClusterProfile, FileThatIsNotThere_IsNamed) {
  EXPECT_THAT(ReadClusterProfile("/nowhere/cluster.yaml"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/cluster.yaml")));
}

TEST(ProfileSpec, WrongKeys_AreNamed) {
  v1::ProfileSpec good;
  good.add_samples(1);
  good.add_samples(4);
  EXPECT_THAT(CheckProfileSpec(good), IsOk());
  const auto with = [&](auto&& change) {
    v1::ProfileSpec spec = good;
    change(spec);
    return CheckProfileSpec(spec);
  };
  EXPECT_THAT(with([](auto& spec) { spec.clear_samples(); }),
              StatusIs(kInvalid, StartsWith("profile.samples: has 0 sizes")));
  EXPECT_THAT(with([](auto& spec) { spec.set_samples(0, 0); }),
              StatusIs(kInvalid, StartsWith("profile.samples: has 0 where 1 to")));
  EXPECT_THAT(with([](auto& spec) { spec.set_samples(1, 1); }),
              StatusIs(kInvalid, StartsWith("profile.samples: has 1 where 2 to")));
  EXPECT_THAT(with([](auto& spec) { spec.set_samples(1, kProfileSamplesMax + 1); }),
              StatusIs(kInvalid, StartsWith("profile.samples")));
  EXPECT_THAT(with([](auto& spec) {
                for (int i = 0; i < kProfileSizesMax; ++i) spec.add_samples(5 + i);
              }),
              StatusIs(kInvalid, StartsWith("profile.samples: has 18 sizes")));
  for (const double seconds : {-1.0, kProfileSecondsMax + 1, std::nan("")}) {
    EXPECT_THAT(with([&](auto& spec) { spec.set_seconds(seconds); }),
                StatusIs(kInvalid, StartsWith("profile.seconds: is ")));
  }
  for (const int workers : {-1, kProfileWorkersMax + 1}) {
    EXPECT_THAT(with([&](auto& spec) { spec.set_workers(workers); }),
                StatusIs(kInvalid, StartsWith("profile.workers: is ")));
  }
}

}  // namespace
}  // namespace penstock
