//! The tree hash of RFC 6962 (section 2.1), leaf by leaf: one digest stands for a range of the log.

use aws_lc_rs::digest::{Context, SHA256};
use paidonce_order::ids::Digest;

/// A tree that grows to the right. Memory: its height.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Roots of full subtrees, the largest first, with the number of their leaves.
    peaks: Vec<(u64, Digest)>,
}

impl Tree {
    /// Adds a leaf.
    pub fn push(&mut self, leaf: &Digest) {
        let mut grown = (1_u64, hash(&[&[0], &leaf.0]));
        while let Some((leaves, left)) = self.peaks.last().copied().filter(|(leaves, _)| *leaves == grown.0) {
            self.peaks.pop();
            grown = (leaves.saturating_mul(2), node(&left, &grown.1));
        }
        self.peaks.push(grown);
    }

    /// The tree's digest; that of nothing for an empty tree.
    #[must_use]
    pub fn root(&self) -> Digest {
        let right_to_left = self.peaks.iter().rev().map(|(_, root)| *root);
        right_to_left.reduce(|right, left| node(&left, &right)).unwrap_or_else(|| hash(&[]))
    }

    /// Of some leaves.
    #[must_use]
    pub fn root_of<'a>(leaves: impl IntoIterator<Item = &'a Digest>) -> Digest {
        let mut tree = Self::default();
        leaves.into_iter().for_each(|leaf| tree.push(leaf));
        tree.root()
    }
}

fn node(left: &Digest, right: &Digest) -> Digest {
    hash(&[&[1], &left.0, &right.0])
}

fn hash(parts: &[&[u8]]) -> Digest {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    Digest(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// By the definition: split at the largest power of two below the number of leaves.
    fn by_definition(leaves: &[Digest]) -> Digest {
        match leaves {
            [] => hash(&[]),
            [leaf] => hash(&[&[0], &leaf.0]),
            more => {
                let split = more.len().next_power_of_two() / 2;
                let (left, right) = more.split_at(split);
                node(&by_definition(left), &by_definition(right))
            }
        }
    }

    #[test]
    fn a_tree_of_any_size_has_the_root_that_the_standard_defines() {
        let leaves: Vec<Digest> = (0..70_u8).map(|number| Digest([number; 32])).collect();
        for size in 0..=leaves.len() {
            assert_eq!(Tree::root_of(&leaves[..size]), by_definition(&leaves[..size]), "{size} leaves");
        }
    }

    /// P8: computed by another program (Python's hashlib) from the description above.
    #[test]
    fn roots_have_their_golden_values() {
        let leaves: Vec<Digest> = (0..3_u8).map(|number| Digest([number; 32])).collect();
        assert_eq!(Tree::root_of(&[]).to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(
            Tree::root_of(&leaves).to_string(),
            "ba8d94b7fbcecae7b81c4c80574fe24734a6917bf9c1ecd66ff3e0c34ead4620"
        );
    }
}
