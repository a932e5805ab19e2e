//! Workloads that measure filesystems: ours in process, and any mounted one by system calls.
