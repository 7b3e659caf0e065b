// What a job's record says of the attempts at it (JobResult.attempts), and from which checkpoint the next one goes on.
//
// These functions are the same for an attempt that ends while the coordinator looks on and for one that a coordinator
// finds in the record of an earlier process. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/v1/cluster.pb.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// The attempts that a record keeps: the latest.
inline constexpr int kAttemptsKept = 128;

// Returns the attempt under way, or null.
v1::Attempt* OpenAttempt(v1::JobResult& result);
// Another attempt begins, after `first_step`. REQUIRES: none is under way.
void BeginAttemptRecord(int64_t epoch, int64_t first_step, v1::JobResult& result);
// The attempt under way has failed, which is known from now on, and will be over once its workers have stopped.
void NoteDetected(int64_t unix_ms, v1::JobResult& result);
// The attempt under way, if there is one, is over. `worker`: to which that is laid; empty: to none.
void EndAttemptRecord(v1::AttemptCause cause, const std::string& worker, const std::string& message,
                      int64_t unix_ms, v1::JobResult& result);
// The job trains again.
void ResumeAttemptRecords(int64_t unix_ms, v1::JobResult& result);

// Returns what is lost of a job that ends before it has drained, as the end of a sentence.
std::string WhatIsLostOf(const v1::JobResult& result);

// Returns whether the job has saved a checkpoint itself, and not only begun from one. REQUIRES: as ResumeOwn.
bool HasOwnCheckpoint(const v1::JobResult& result, const v1::CheckpointSpec& checkpoint);

// Makes the next attempt go on from the job's own last checkpoint. Until it has one, it starts as the job says. REQUIRES:
// `result` is of the job whose checkpoints these are.
void ResumeOwn(const v1::JobResult& result, v1::CheckpointSpec& checkpoint);

}  // namespace penstock
