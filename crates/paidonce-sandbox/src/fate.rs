//! Chance without surprise: every decision is a hash of the seed and of what it is about, so that the same seed decides the
//! same whatever the order in which things happen.

use aws_lc_rs::digest::{SHA256, digest};

/// A seeded source of decisions.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    seed: u64,
}

impl Fate {
    /// The decisions of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Whether something that happens `percent` times in a hundred happens to `what`.
    #[must_use]
    pub fn happens(&self, percent: u8, question: &str, what: &str) -> bool {
        self.below(100, question, what) < u64::from(percent)
    }

    /// A number from 0 to `limit - 1`; 0 when `limit` is 0.
    #[must_use]
    pub fn below(&self, limit: u64, question: &str, what: &str) -> u64 {
        let text = format!("{}|{question}|{what}", self.seed);
        let hash = digest(&SHA256, text.as_bytes());
        let first = hash.as_ref().iter().take(8).fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        first.checked_rem(limit).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_decides_the_same_in_any_order() {
        let (a, b) = (Fate::new(7), Fate::new(7));
        let forward: Vec<bool> = (0..50).map(|n| a.happens(30, "lose", &n.to_string())).collect();
        let mut backward: Vec<bool> = (0..50).rev().map(|n| b.happens(30, "lose", &n.to_string())).collect();
        backward.reverse();
        assert_eq!(forward, backward);
    }

    #[test]
    fn a_percentage_is_met_and_its_ends_are_certain() {
        let fate = Fate::new(1);
        let count = (0..2_000).filter(|n| fate.happens(20, "lose", &n.to_string())).count();
        assert!((300..500).contains(&count), "{count} of 2000 at 20 %");
        assert!((0..200).all(|n| fate.happens(100, "all", &n.to_string())));
        assert!(!(0..200).any(|n| fate.happens(0, "none", &n.to_string())));
    }
}
