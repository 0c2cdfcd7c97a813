//! Upcasters from older event versions, applied after the hash chain was checked. All events are at version 1: none yet.
