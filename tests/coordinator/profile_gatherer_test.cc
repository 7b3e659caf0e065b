#include "coordinator/profile_gatherer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "job/profile/cluster_profile.h"
#include "tests/coordinator/simulated_cluster.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ProfileGathererTest : public ::testing::Test {
 protected:
  // On workers with these devices, as many on each host.
  ProfileGatherer On(const std::vector<std::string>& devices, size_t on_host = 1) {
    std::vector<WorkerOffer> workers;
    for (size_t i = 0; i < devices.size(); ++i) {
      const std::string number = std::to_string(i);
      workers.push_back({.name = "w" + number,
                         .address = "host-" + std::to_string(i / on_host) + ":7000",
                         .device = devices[i],
                         .memory_bytes = 1000});
    }
    return ProfileGatherer(profile_, *job_, workers);
  }

  v1::LayersTimed Timed(double ms = 1.0) const {
    v1::LayersTimed timed;
    *timed.mutable_model() = ProfileOf(spec_, profile_, ms);
    return timed;
  }

  static v1::LinksMeasured LinksTo(const std::vector<int32_t>& workers) {
    v1::LinksMeasured measured;
    for (const int32_t to : workers) {
      v1::MeasuredLink& link = *measured.add_links();
      link.set_to_worker_index(to);
      link.set_latency_us(5.0 + to);
      link.set_bytes_per_second(1e9);
    }
    return measured;
  }

  v1::JobSpec spec_ = SmallJob(4, 2);
  v1::ProfileSpec profile_ = SmallProfile();
  absl::StatusOr<ResolvedJob> job_ = ResolveJob(spec_);
};

TEST_F(ProfileGathererTest, EveryWorker_TimesLayers) {
  const ProfileGatherer gatherer = On({"cpu", "gpu", "cpu", "gpu"});
  for (int32_t i = 0; i < 4; ++i) EXPECT_TRUE(gatherer.TimesLayers(i));
  EXPECT_EQ(gatherer.Keys().size(), 2u);
  const int64_t shapes = Timed().model().shapes_size();
  EXPECT_EQ(gatherer.total(), 4 * 3 + 4 * shapes);
}

TEST_F(ProfileGathererTest, TimesOfAKind_AreTheMeanOfItsWorkers) {
  ProfileGatherer gatherer = On({"cpu", "gpu", "cpu"});
  ASSERT_THAT(gatherer.OnLayers(2, Timed(5.0)), IsOk());
  EXPECT_EQ(gatherer.Kept(2), std::nullopt);
  ASSERT_THAT(gatherer.OnLayers(1, Timed(7.0)), IsOk());
  ASSERT_TRUE(gatherer.Kept(1).has_value());
  ASSERT_THAT(gatherer.OnLayers(0, Timed(2.0)), IsOk());
  ASSERT_TRUE(gatherer.Kept(0).has_value());
  EXPECT_EQ(gatherer.Kept(0)->key, gatherer.Keys()[0]);
  EXPECT_EQ(gatherer.Kept(0)->times.timed_on(), "w0 and 1 more");
  const v1::ModelProfile cpu = gatherer.Kept(0)->times.model();
  EXPECT_EQ(cpu.shapes(0).sizes(0).forward().ms(), 3.5);
  EXPECT_EQ(cpu.shapes(0).sizes(0).backward_weight().ms(), 3.5);
  EXPECT_EQ(gatherer.Kept(1)->times.model().shapes(0).sizes(0).forward().ms(), 7.0);
}

TEST_F(ProfileGathererTest, Reports_BecomeTheProfile) {
  ProfileGatherer gatherer = On({"gpu", "cpu"});
  EXPECT_EQ(gatherer.done(), 0);
  ASSERT_THAT(gatherer.OnLinks(0, LinksTo({1})), IsOk());
  ASSERT_THAT(gatherer.OnLinks(1, LinksTo({0})), IsOk());
  EXPECT_EQ(gatherer.done(), 2);
  ASSERT_THAT(gatherer.OnLayers(0, Timed(3.0)), IsOk());
  ASSERT_THAT(gatherer.OnLayers(1, Timed(4.0)), IsOk());
  EXPECT_EQ(gatherer.done(), gatherer.total());
  EXPECT_THAT(gatherer.CheckDone(0), IsOk());
  EXPECT_THAT(gatherer.CheckDone(1), IsOk());

  const v1::ClusterProfile profile = gatherer.Result();
  EXPECT_THAT(CheckClusterProfile(profile), IsOk());
  ASSERT_EQ(profile.devices_size(), 2);
  EXPECT_EQ(profile.devices(1).device(), "cpu");
  EXPECT_EQ(profile.devices(1).timed_on(), "w1");
  EXPECT_FALSE(profile.devices(1).cached());
  EXPECT_EQ(profile.devices(1).model().shapes(0).sizes(0).forward().ms(), 4.0);
  ASSERT_EQ(profile.workers_size(), 2);
  EXPECT_EQ(profile.workers(0).worker(), "w0");
  EXPECT_EQ(profile.workers(0).device(), "gpu");
  EXPECT_EQ(profile.workers(0).host(), "host-0");
  EXPECT_EQ(profile.workers(0).memory_bytes(), 1000);
  ASSERT_EQ(profile.links_size(), 2);
  EXPECT_EQ(profile.links(0).from(), "w0");
  EXPECT_EQ(profile.links(0).to(), "w1");
  EXPECT_EQ(profile.links(0).latency_us(), 6.0);
}

TEST_F(ProfileGathererTest, KnownKinds_AreNotTimedAndSaySo) {
  ProfileGatherer first = On({"gpu", "cpu"});
  ASSERT_THAT(first.OnLayers(1, Timed(7.0)), IsOk());
  const KeepLayerTimes kept = *first.Kept(1);
  EXPECT_EQ(kept.key, first.Keys()[1]);

  ProfileGatherer second = On({"gpu", "cpu", "cpu"});
  second.TakeKnown({{std::nullopt, kept.times}});
  EXPECT_TRUE(second.TimesLayers(0));
  EXPECT_FALSE(second.TimesLayers(1));
  EXPECT_FALSE(second.TimesLayers(2));
  EXPECT_THAT(second.Notes(),
              ElementsAre(HasSubstr("the layers are timed on w0"), HasSubstr("known from w1")));
  ASSERT_THAT(second.OnLayers(0, Timed()), IsOk());
  EXPECT_TRUE(second.Result().devices(1).cached());
  EXPECT_EQ(second.Result().devices(1).timed_on(), "w1");
  EXPECT_EQ(second.Result().devices(1).model().shapes(0).sizes(0).forward().ms(), 7.0);
}

// Otherwise those that time would have their hosts for themselves, and be kept as if they had not.
TEST_F(ProfileGathererTest, KnownKind_IsTimedAgainBesideOneThatIsNotKnown) {
  v1::DeviceProfile known;
  *known.mutable_model() = Timed().model();
  const auto times_of = [&](absl::string_view device) {
    known.set_device(std::string(device));
    return std::optional(known);
  };
  // The host of b and c times c, so that b is timed, and with it a, on the other host of b.
  ProfileGatherer gatherer = On({"a", "b", "b", "c", "d", "d"}, 2);
  gatherer.TakeKnown({{times_of("a"), times_of("b"), std::nullopt, times_of("d")}});
  for (int32_t i = 0; i < 6; ++i) EXPECT_EQ(gatherer.TimesLayers(i), i < 4) << i;
}

TEST_F(ProfileGathererTest, KnownTimes_FitAModelWithMoreLayersOfTheSameShapes) {
  ProfileGatherer shallow = On({"cpu"});
  ASSERT_THAT(shallow.OnLayers(0, Timed()), IsOk());
  spec_.mutable_model()->mutable_gpt()->set_layers(spec_.model().gpt().layers() + 3);
  job_ = ResolveJob(spec_);
  ProfileGatherer deep = On({"cpu"});
  EXPECT_EQ(deep.Keys()[0], shallow.Kept(0)->key);
  deep.TakeKnown({{shallow.Kept(0)->times}});
  EXPECT_FALSE(deep.TimesLayers(0));
  EXPECT_EQ(deep.Result().devices(0).model().layers_size(), job_->model.size());
}

TEST_F(ProfileGathererTest, KnownTimesThatDoNotFit_AreMeasuredAgain) {
  v1::DeviceProfile good;
  good.set_device("cpu");
  *good.mutable_model() = Timed().model();
  std::vector<v1::DeviceProfile> bad(5, good);
  bad[0].set_device("gpu");
  bad[1].mutable_model()->mutable_shapes()->RemoveLast();
  bad[2].mutable_model()->mutable_shapes(0)->mutable_sizes(0)->set_samples(3);
  bad[3].mutable_model()->mutable_shapes(0)->mutable_update()->set_ms(
      std::numeric_limits<double>::quiet_NaN());
  bad[4].mutable_model()->set_time_steps(1);
  for (const v1::DeviceProfile& times : bad) {
    ProfileGatherer gatherer = On({"cpu"});
    gatherer.TakeKnown({{times}});
    EXPECT_TRUE(gatherer.TimesLayers(0)) << times.DebugString();
  }
  ProfileGatherer gatherer = On({"cpu"});
  gatherer.TakeKnown({{good}});
  EXPECT_FALSE(gatherer.TimesLayers(0));
}

TEST_F(ProfileGathererTest, WhateverChangesTimes_ChangesTheKey) {
  std::set<std::string> keys = {On({"cpu"}).Keys()[0]};
  const auto expect_another = [&](const std::string& what) {
    job_ = ResolveJob(spec_);
    ASSERT_THAT(job_, IsOk()) << what;
    EXPECT_TRUE(keys.insert(On({"cpu"}).Keys()[0]).second) << what;
  };
  EXPECT_TRUE(keys.insert(On({"gpu"}).Keys()[0]).second) << "device";
  EXPECT_TRUE(keys.insert(On({"cpu", "gpu"}, 2).Keys()[0]).second) << "workers on a host";
  EXPECT_FALSE(keys.insert(On({"cpu", "gpu"}, 1).Keys()[0]).second) << "workers on other hosts";
  profile_.add_samples(4);
  expect_another("samples");
  spec_.mutable_training()->set_threads(2);
  expect_another("threads");
  spec_.mutable_training()->set_precision("bf16");
  expect_another("precision");
  spec_.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  expect_another("optimizer");
  spec_.mutable_model()->mutable_gpt()->set_context(2 * spec_.model().gpt().context());
  expect_another("time steps");
  spec_.mutable_model()->mutable_gpt()->set_width(2 * spec_.model().gpt().width());
  expect_another("shapes");
}

TEST_F(ProfileGathererTest, RatesOfCopies_AreInTheProfileOfThoseThatToldThem) {
  ProfileGatherer gatherer = On({"cpu", "cpu"});
  v1::CopiesMeasured copies;
  copies.set_bytes_per_second(2.5e9);
  ASSERT_THAT(gatherer.OnCopies(1, copies), IsOk());
  for (const int32_t i : {0, 1}) {
    ASSERT_THAT(gatherer.OnLinks(i, LinksTo({1 - i})), IsOk());
    ASSERT_THAT(gatherer.OnLayers(i, Timed()), IsOk());
    ASSERT_THAT(gatherer.CheckDone(i), IsOk()) << "the rate is no duty";
  }
  const v1::ClusterProfile profile = gatherer.Result();
  EXPECT_EQ(profile.workers(0).offload_bytes_per_second(), 0.0);
  EXPECT_EQ(profile.workers(1).offload_bytes_per_second(), 2.5e9);
}

TEST_F(ProfileGathererTest, WrongReports_AreRefused) {
  ProfileGatherer gatherer = On({"cpu", "gpu", "cpu"});
  v1::DeviceProfile known;
  known.set_device("gpu");
  *known.mutable_model() = Timed().model();
  gatherer.TakeKnown({{std::nullopt, known}});
  EXPECT_THAT(gatherer.OnLinks(0, LinksTo({1})),
              StatusIs(kInvalid, HasSubstr("measured 1 links instead of 2")));
  EXPECT_THAT(gatherer.OnLinks(0, LinksTo({1, 1})), StatusIs(kInvalid, HasSubstr("worker 1")));
  EXPECT_THAT(gatherer.OnLinks(0, LinksTo({0, 1})), StatusIs(kInvalid, HasSubstr("worker 0")));
  EXPECT_THAT(gatherer.OnLinks(0, LinksTo({1, 3})), StatusIs(kInvalid, HasSubstr("worker 3")));
  EXPECT_THAT(gatherer.OnLinks(0, LinksTo({1, -1})), StatusIs(kInvalid, HasSubstr("worker -1")));
  v1::LinksMeasured links = LinksTo({1, 2});
  links.mutable_links(1)->set_bytes_per_second(0.0);
  EXPECT_THAT(gatherer.OnLinks(0, links), StatusIs(kInvalid, HasSubstr("bytes_per_second: is 0")));
  links = LinksTo({1, 2});
  links.mutable_links(0)->set_latency_us(NAN);
  EXPECT_THAT(gatherer.OnLinks(0, links), StatusIs(kInvalid, HasSubstr("latency_us: is nan")));

  for (const double rate : {0.0, -1.0, double{NAN}, double{INFINITY}}) {
    v1::CopiesMeasured copies;
    copies.set_bytes_per_second(rate);
    EXPECT_THAT(gatherer.OnCopies(0, copies),
                StatusIs(kInvalid, HasSubstr("copies.bytes_per_second: is ")));
  }

  EXPECT_THAT(gatherer.OnLayers(1, Timed()), StatusIs(kInvalid, HasSubstr("nobody asked")));
  v1::LayersTimed timed = Timed();
  timed.mutable_model()->mutable_layers(0)->set_layer("other");
  EXPECT_THAT(gatherer.OnLayers(0, timed), StatusIs(kInvalid, HasSubstr("another model")));
  // Times of several workers are taken together by their places.
  timed = Timed();
  timed.mutable_model()->mutable_shapes()->SwapElements(0, 1);
  EXPECT_THAT(gatherer.OnLayers(0, timed), StatusIs(kInvalid, HasSubstr("in the order of their")));
  timed = Timed();
  v1::ShapeProfile& unused = *timed.mutable_model()->add_shapes();
  unused = timed.model().shapes(0);
  unused.set_shape("another");
  EXPECT_THAT(gatherer.OnLayers(0, timed), StatusIs(kInvalid, HasSubstr("shapes of layers")));
  profile_.set_samples(0, 7);
  EXPECT_THAT(gatherer.OnLayers(0, Timed()),
              StatusIs(kInvalid, HasSubstr("asked for microbatches of 2 samples and has 7")));
  EXPECT_THAT(gatherer.CheckDone(0), StatusIs(kInvalid, HasSubstr("without its links")));
  ASSERT_THAT(gatherer.OnLinks(0, LinksTo({1, 2})), IsOk());
  EXPECT_THAT(gatherer.CheckDone(0), StatusIs(kInvalid, HasSubstr("without the times")));
}

// A worker may claim what it likes; the bar does not pass its end.
TEST_F(ProfileGathererTest, Progress_StaysBelowTheTotal) {
  ProfileGatherer gatherer = On({"cpu", "cpu"});
  v1::MeasurementBegun begun;
  begun.set_done(1'000'000);
  gatherer.OnBegun(0, begun);
  EXPECT_LT(gatherer.done(), gatherer.total());
  gatherer.OnBegun(1, begun);
  EXPECT_EQ(gatherer.done(), gatherer.total());
}

TEST_F(ProfileGathererTest, OnlyWorker_HasNoLinks) {
  ProfileGatherer gatherer = On({"cpu"});
  ASSERT_THAT(gatherer.OnLayers(0, Timed()), IsOk());
  EXPECT_THAT(gatherer.CheckDone(0), IsOk());
  EXPECT_THAT(gatherer.Result().links(), IsEmpty());
  EXPECT_THAT(CheckClusterProfile(gatherer.Result()), IsOk());
}

}  // namespace
}  // namespace penstock
