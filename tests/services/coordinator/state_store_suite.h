// StateStoreSuite: what every StateStore promises. A back-end's test instantiates it with a maker of its host:
//
//   INSTANTIATE_TEST_SUITE_P(Sqlite, StateStoreSuite, testing::Values(MakeSqliteHost));
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/coordinator/state_store.h"

namespace penstock {

// A state that stores are opened on, one after the other, as by one process after another.
class StateStoreHost {
 public:
  virtual ~StateStoreHost() = default;
  // REQUIRES: the store before is gone.
  virtual absl::StatusOr<std::unique_ptr<StateStore>> Open() = 0;
  // Change what is kept, as a disk does that fails. REQUIRES: it is there, and no store is open.
  virtual void DamageRecord(const std::string& job_id) = 0;
  virtual void RemoveEvent(const std::string& job_id, int64_t sequence) = 0;
};

using StateStoreHostMaker = std::function<std::unique_ptr<StateStoreHost>()>;

class StateStoreSuite : public ::testing::TestWithParam<StateStoreHostMaker> {
 protected:
  // Opens the state, as a process does that was started again.
  void SetUp() override { Reopen(); }
  void Reopen();

  std::unique_ptr<StateStoreHost> host_;
  std::unique_ptr<StateStore> store_;
};

// ---- What is written there, also by tests of one back-end.
SaveJob StoredJobOf(const std::string& job_id, v1::JobState state, const std::string& key = "");
PublishEvent StoredEventOf(const std::string& job_id, int64_t sequence);
KeepLayerTimes StoredTimesOf(const std::string& key, const std::string& device);

}  // namespace penstock
