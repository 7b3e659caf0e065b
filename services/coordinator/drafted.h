// What a write changes of what a store knows, beside it, until the write is done.
//
// Pure functions.
#pragma once

#include <map>
#include <string>
#include <utility>

namespace penstock {

// Returns the value of `key` after the draft: as drafted, or else as it is kept; null if neither has it.
template <typename Value>
const Value* FindIn(const std::map<std::string, Value>& drafted,
                    const std::map<std::string, Value>& kept, const std::string& key) {
  if (const auto found = drafted.find(key); found != drafted.end()) return &found->second;
  const auto found = kept.find(key);
  return found == kept.end() ? nullptr : &found->second;
}

// Moves what was drafted over what is kept.
template <typename Value>
void Take(std::map<std::string, Value>& drafted, std::map<std::string, Value>& kept) {
  for (auto& [key, value] : drafted) kept[key] = std::move(value);
}

}  // namespace penstock
