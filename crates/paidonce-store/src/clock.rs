//! The movable part of "now": how far test builds have pushed the database's clock. Always zero without feature `testing`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Added to the database's time wherever the store asks for "now" (recorded_at, due_at, leases). Units: microseconds.
/// Clones share one value.
#[derive(Debug, Clone, Default)]
pub struct ClockOffset(Arc<AtomicI64>);

impl ClockOffset {
    /// The offset in microseconds; zero in production builds.
    #[must_use]
    pub fn micros(&self) -> i64 {
        if cfg!(feature = "testing") { self.0.load(Ordering::SeqCst) } else { 0 }
    }

    /// Pushes the clock.
    #[cfg(feature = "testing")]
    pub fn set_micros(&self, micros: i64) {
        self.0.store(micros, Ordering::SeqCst);
    }
}
