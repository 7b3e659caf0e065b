// Jobs that name directories that were put to this coordinator (base/put_path.h): what only their lists tell is entered when a job is
// handed in.
//
// Plain functions. They wait for the disk.
#pragma once

#include "absl/status/status.h"
#include "data/digest_store.h"
#include "data/put_listing.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// Whether the job names such a directory. (A file by itself is known by its digest alone.)
bool NamesPutDirectory(const v1::JobSpec& spec);

// Checks that what the job names in directories is there as a whole, puts the family in the place of a directory of Hugging Face's
// (job/hugging_face/read_config.h), and enters the digests of data: that of an index of records, of a tokenizer's file, of a
// text, and of token files one over the names and digests of all. The lists must be those of `store`; null: this coordinator keeps none.
// Errors, which begin with the key: NotFound (what is missing, by its name), InvalidArgument (a list that is none, another digest
// than the job's), FailedPrecondition (no store), those of ReadHuggingFaceConfig.
absl::Status CompletePutJob(DigestStore* store, v1::JobSpec& spec);

// Reads whole files of `store`, which outlives it.
PutReadCall ReadCallOf(DigestStore& store);

}  // namespace penstock
