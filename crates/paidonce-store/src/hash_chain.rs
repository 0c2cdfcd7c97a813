//! The hash chain over a shard's events (promise P8).
