// Process: a program of a simulated world, which can be killed, started again, frozen (SIGSTOP) and thawed.
//
// What is to happen in a process happens in the life of it that it was meant for, or never; in a frozen one it happens when
// the process is thawed, in its order.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/virtual_time.h"

namespace penstock {

class Process {
 public:
  // REQUIRES: `time` outlives the process.
  Process(VirtualTime& time, std::string name) : time_(time), name_(std::move(name)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const std::string& name() const { return name_; }
  bool alive() const { return alive_; }
  bool frozen() const { return frozen_; }
  // Counts its lives; 0 before the first.
  int64_t life() const { return life_; }

  void Start() {
    alive_ = true;
    ++life_;
  }
  void Kill() {
    alive_ = false;
    frozen_ = false;
    waiting_.clear();
    for (const auto& [number, told] : std::exchange(on_death_, {})) told();
  }
  void Freeze() { frozen_ = alive_; }
  void Thaw() {
    frozen_ = false;
    for (const auto& what : std::exchange(waiting_, {})) Do(life_, what);
  }

  // Does it now, or when it is thawed.
  void Do(int64_t life, std::function<void()> what) {
    if (!alive_ || life != life_) return;
    if (frozen_) {
      waiting_.push_back(std::move(what));
    } else {
      what();
    }
  }
  void After(absl::Duration wait, std::function<void()> what) {
    time_.After(wait, [this, life = life_, what = std::move(what)] { Do(life, what); });
  }

  // Calls `told` when this life ends. Returns a number for ForgetDeath.
  int64_t OnDeath(std::function<void()> told) {
    on_death_[next_number_] = std::move(told);
    return next_number_++;
  }
  void ForgetDeath(int64_t number) { on_death_.erase(number); }

 private:
  VirtualTime& time_;
  const std::string name_;
  bool alive_ = false;
  bool frozen_ = false;
  int64_t life_ = 0;
  std::vector<std::function<void()>> waiting_;
  int64_t next_number_ = 0;
  std::map<int64_t, std::function<void()>> on_death_;
};

}  // namespace penstock
