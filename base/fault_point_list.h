// The fault points: places at which a test can end a process, stop it for a while, or make an operation fail
// (fault_points.h). To add one, add a row here and a line at the place.
//
// A row has the point's identifier, its name as tests write it (AREA.PLACE), and kFails where the place can return an
// error, otherwise kEnds.
#pragma once

#define PENSTOCK_FAULT_POINT_LIST(ROW)                                                  \
  /* Files that are written durably: layers, manifests, the witness of the state. */    \
  ROW(kFileBeforeWrite, "file.before_write", kFails)                                    \
  ROW(kFileDuringWrite, "file.during_write", kEnds)                                     \
  ROW(kFileBeforeFsync, "file.before_fsync", kFails)                                    \
  ROW(kFileAfterFsync, "file.after_fsync", kEnds)                                       \
  ROW(kFileBeforeRename, "file.before_rename", kFails)                                  \
  ROW(kFileAfterRename, "file.after_rename", kEnds)                                     \
  ROW(kFileAfterParentFsync, "file.after_parent_fsync", kEnds)                          \
  ROW(kFileBeforeRemoval, "file.before_removal", kFails)                                \
  ROW(kFileDuringRemoval, "file.during_removal", kEnds)                                 \
  /* A worker that saves its layers. */                                                 \
  ROW(kSaveBeforeLayer, "save.before_layer", kFails)                                    \
  ROW(kSaveBetweenFiles, "save.between_files", kFails)                                  \
  ROW(kSaveAfterLayer, "save.after_layer", kEnds)                                       \
  ROW(kSaveBeforeReport, "save.before_report", kEnds)                                   \
  /* The commit of a checkpoint, and what is cleared up after it and before a start. */ \
  ROW(kCheckpointBeforeManifest, "checkpoint.before_manifest", kFails)                  \
  ROW(kCheckpointAfterManifest, "checkpoint.after_manifest", kEnds)                     \
  ROW(kCheckpointBeforeReadBack, "checkpoint.before_read_back", kFails)                 \
  ROW(kCheckpointBeforePublish, "checkpoint.before_publish", kFails)                    \
  ROW(kCheckpointBetweenNames, "checkpoint.between_names", kEnds)                       \
  ROW(kCheckpointAfterPublish, "checkpoint.after_publish", kEnds)                       \
  ROW(kCheckpointBeforeDiscard, "checkpoint.before_discard", kFails)                    \
  ROW(kCheckpointBeforePrune, "checkpoint.before_prune", kFails)                        \
  ROW(kCheckpointInGrave, "checkpoint.in_grave", kFails)                                \
  ROW(kCheckpointAfterPrune, "checkpoint.after_prune", kEnds)                           \
  ROW(kCheckpointBeforeSweep, "checkpoint.before_sweep", kFails)                        \
  ROW(kCheckpointAfterSweep, "checkpoint.after_sweep", kEnds)                           \
  ROW(kCheckpointBeforeLoad, "checkpoint.before_load", kFails)                          \
  /* The coordinator's work on checkpoint directories. */                               \
  ROW(kKeeperBeforeClaim, "keeper.before_claim", kFails)                                \
  ROW(kKeeperAfterClaim, "keeper.after_claim", kEnds)                                   \
  ROW(kKeeperBeforeCommit, "keeper.before_commit", kEnds)                               \
  ROW(kKeeperAfterCommit, "keeper.after_commit", kEnds)                                 \
  /* Files of checkpoints that workers send to the coordinator. */                      \
  ROW(kPartsBeforeWrite, "parts.before_write", kFails)                                  \
  ROW(kPartsAfterWrite, "parts.after_write", kEnds)                                     \
  /* The coordinator's state in a file, and in etcd. */                                 \
  ROW(kStoreAfterOpen, "store.after_open", kEnds)                                       \
  ROW(kStoreBeforeTransaction, "store.before_transaction", kFails)                      \
  ROW(kStoreBeforeCommit, "store.before_commit", kFails)                                \
  ROW(kStoreAfterCommit, "store.after_commit", kEnds)                                   \
  ROW(kStoreAfterWitness, "store.after_witness", kEnds)                                 \
  ROW(kEtcdBeforeTransaction, "etcd.before_transaction", kFails)                        \
  ROW(kEtcdAfterTransaction, "etcd.after_transaction", kFails)                          \
  /* The coordinator's event loop. */                                                   \
  ROW(kLoopAfterRestore, "loop.after_restore", kEnds)                                   \
  ROW(kLoopBeforeWrite, "loop.before_write", kEnds)                                     \
  ROW(kLoopAfterWrite, "loop.after_write", kEnds)                                       \
  ROW(kLoopAfterKeep, "loop.after_keep", kEnds)                                         \
  ROW(kLoopBeforeEffects, "loop.before_effects", kEnds)                                 \
  ROW(kLoopAfterEffects, "loop.after_effects", kEnds)                                   \
  ROW(kLoopBeforeAnswers, "loop.before_answers", kEnds)                                 \
  ROW(kLoopAfterAnswers, "loop.after_answers", kEnds)                                   \
  ROW(kCallBeforeStart, "call.before_start", kEnds)                                     \
  ROW(kCallAfterAnswer, "call.after_answer", kEnds)                                     \
  ROW(kDrainBeforeCoordinator, "drain.before_coordinator", kEnds)                       \
  ROW(kDrainAfterCoordinator, "drain.after_coordinator", kEnds)                         \
  ROW(kAuditBeforeWrite, "audit.before_write", kFails)                                  \
  ROW(kAuditAfterWrite, "audit.after_write", kEnds)                                     \
  /* A worker's ties to the coordinator. */                                             \
  ROW(kRegistrationBeforeCall, "registration.before_call", kEnds)                       \
  ROW(kRegistrationAfterAnswer, "registration.after_answer", kEnds)                     \
  ROW(kDrainBeforeWorker, "drain.before_worker", kEnds)                                 \
  ROW(kDrainDuringWorker, "drain.during_worker", kEnds)                                 \
  ROW(kDrainAfterWorker, "drain.after_worker", kEnds)                                   \
  ROW(kReportBeforeSend, "report.before_send", kEnds)                                   \
  ROW(kReportAfterAnswer, "report.after_answer", kEnds)                                 \
  /* A worker's run, from its calls to its executor's thread. */                        \
  ROW(kRunBeforePrepare, "run.before_prepare", kFails)                                  \
  ROW(kRunAfterPrepare, "run.after_prepare", kEnds)                                     \
  ROW(kRunBeforeStart, "run.before_start", kFails)                                      \
  ROW(kRunBeforeStop, "run.before_stop", kEnds)                                         \
  ROW(kRunDeviceLost, "run.device_lost", kFails)                                        \
  ROW(kRunAfterEnd, "run.after_end", kEnds)                                             \
  ROW(kRunAtCut, "run.at_cut", kFails)                                                  \
  ROW(kRunBeforeDone, "run.before_done", kFails)                                        \
  ROW(kExecutorAfterAction, "executor.after_action", kFails)                            \
  ROW(kExecutorBeforeUpdate, "executor.before_update", kFails)                          \
  ROW(kExecutorAfterUpdate, "executor.after_update", kFails)                            \
  /* Tensor streams. */                                                                 \
  ROW(kTensorBeforeDial, "tensor.before_dial", kEnds)                                   \
  ROW(kTensorBeforeHello, "tensor.before_hello", kEnds)                                 \
  ROW(kTensorBeforeSend, "tensor.before_send", kEnds)                                   \
  ROW(kTensorAfterReceive, "tensor.after_receive", kEnds)                               \
  ROW(kTensorBeforeCredit, "tensor.before_credit", kEnds)
