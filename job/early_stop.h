// EarlyStop: where a job ends because its validations no longer improve (validation.stop_after).
//
// A function of the losses of the validations so far, so that all workers, and the serial reference, end at the same cut.
//
// A plain value.
#pragma once

#include <cstdint>
#include <optional>

namespace penstock {

class EarlyStop {
 public:
  // What is known of the validations before a run.
  struct Course {
    std::optional<double> best;  // the lowest loss; absent: there was none
    int64_t since_best = 0;      // validations after the first that had it
  };

  // `stop_after`: validations in a row without a lower loss than the best, after which the job ends; 0: never.
  explicit EarlyStop(int64_t stop_after) : stop_after_(stop_after) {}
  EarlyStop(int64_t stop_after, const Course& course) : stop_after_(stop_after), course_(course) {}

  bool watches() const { return stop_after_ > 0; }
  // Takes the loss of the next validation. Returns whether the job ends with it.
  bool Ends(double loss) {
    if (!course_.best.has_value() || loss < *course_.best) {
      course_ = {.best = loss};
    } else {
      ++course_.since_best;
    }
    return Over();
  }
  // Whether it has ended already.
  bool Over() const { return watches() && course_.since_best >= stop_after_; }
  const Course& course() const { return course_; }

 private:
  int64_t stop_after_;
  Course course_;
};

}  // namespace penstock
