// Schedules with mistakes.
#pragma once

#include <utility>

#include "base/random.h"
#include "schedule/schedule.h"

namespace penstock {

// Makes one change at random: swaps two actions, drops, repeats or moves one, gives one to another stage, or
// drops a microbatch everywhere.
// REQUIRES: programs without a period, none empty.
inline void Mutate(RandomStream& random, Schedule& schedule) {
  Program& program = schedule.programs[random.Below(schedule.programs.size())];
  ActionList& list = program.prologue;
  const size_t i = random.Below(list.size());
  const size_t j = random.Below(list.size());
  switch (random.Below(7)) {
    case 0:
    case 1:
      if (i + 1 < list.size()) std::swap(list[i], list[i + 1]);
      break;
    case 2:
      std::swap(list[i], list[j]);
      break;
    case 3:
      if (list.size() > 1) list.erase(list.begin() + static_cast<long>(i));
      break;
    case 4: {
      const Action copy = list[i];
      list.insert(list.begin() + static_cast<long>(j), copy);
      break;
    }
    case 5:
      if (HasIndex(list[i].kind)) {
        list[i].index =
            static_cast<int32_t>(random.Below(static_cast<uint64_t>(schedule.topology.stages())));
      }
      break;
    case 6: {
      // Sometimes the range knows.
      const int64_t dropped = schedule.range.end() - 1;
      for (Program& each : schedule.programs) {
        std::erase_if(each.prologue, [&](const Action& action) {
          return HasMicrobatch(action.kind) && action.microbatch == dropped;
        });
      }
      if (random.Below(2) == 0 && schedule.range.count > 1) --schedule.range.count;
      break;
    }
  }
}

}  // namespace penstock
