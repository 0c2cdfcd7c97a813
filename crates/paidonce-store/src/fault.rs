//! Places where a test build can be made to stumble. Without feature `testing` every point is an empty function.
//!
//! | point | where |
//! |---|---|
//! | `decide:<order_no>` | the rules have decided on this order and an event is applied to their copy of it; `panic` only |
//! | `before_append` | the batch is decided, nothing of it was sent |
//! | `db_commit` | everything was sent, COMMIT was not |
//! | `after_commit` | COMMIT is done, nobody was answered |
//! | `effect_before_send` | claimed, not sent |
//! | `effect_after_send` | the receiver answered, the row does not know it |
//! | `handler` | inside the callback handler |

#[cfg(feature = "testing")]
pub use armed::Arm;

/// What an injected fault asks of its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Injected {
    /// Behave as if the step had failed.
    #[error("injected error")]
    Error,
    /// Close the database connection without a word.
    #[error("injected disconnect")]
    Disconnect,
}

/// A set of armed points. [`Faults::default`] is the one of the process; a test gives each store its own with
/// `Faults::private`.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    #[cfg(feature = "testing")]
    private: Option<std::sync::Arc<armed::Registry>>,
}

impl Faults {
    /// Passes a point of this set. Errors: what the armed action asks for.
    #[cfg(not(feature = "testing"))]
    #[expect(clippy::unused_async, reason = "the same shape as in a test build")]
    #[inline]
    pub async fn point(&self, _name: &'static str) -> Result<(), Injected> {
        Ok(())
    }

    /// Passes the point `decide:<aggregate_id>`. The rules can't wait or fail, so it can only panic.
    #[cfg(not(feature = "testing"))]
    #[inline]
    pub(crate) const fn decide(&self, _aggregate_id: &str) {}
}

/// Passes a point of the process's set. Errors: what the armed action asks for.
#[inline]
pub async fn point(name: &'static str) -> Result<(), Injected> {
    Faults::default().point(name).await
}

#[cfg(feature = "testing")]
mod armed {
    use std::collections::HashMap;
    use std::sync::{Arc, LazyLock, Mutex, PoisonError};
    use std::time::Duration;

    use serde::{Deserialize, Serialize};

    use super::{Faults, Injected};

    static PROCESS: LazyLock<Registry> = LazyLock::new(Registry::default);

    /// Armed points by name.
    #[derive(Debug, Default)]
    pub struct Registry(Mutex<HashMap<String, Armed>>);

    #[derive(Debug, Clone)]
    struct Armed {
        action: Arm,
        times_left: u32,
    }

    /// What happens when a point is passed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(tag = "action", rename_all = "snake_case")]
    pub enum Arm {
        /// Wait.
        Delay {
            /// How long.
            seconds: u64,
        },
        /// Panic in place.
        Panic,
        /// End the process at once, without any clean-up.
        Kill,
        /// The step fails.
        Error,
        /// The database connection is closed.
        Disconnect,
    }

    impl Registry {
        fn take(&self, name: &str) -> Option<Arm> {
            let mut points = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let armed = points.get_mut(name)?;
            let action = armed.action;
            armed.times_left = armed.times_left.saturating_sub(1);
            if armed.times_left == 0 {
                points.remove(name);
            }
            Some(action)
        }
    }

    impl Faults {
        /// A set that no other store shares.
        #[must_use]
        pub fn private() -> Self {
            Self { private: Some(Arc::default()) }
        }

        fn registry(&self) -> &Registry {
            self.private.as_deref().unwrap_or(&PROCESS)
        }

        /// Arms a point for the next `times` passes.
        pub fn arm(&self, name: &str, action: Arm, times: u32) {
            let armed = Armed { action, times_left: times.max(1) };
            self.registry().0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), armed);
        }

        /// Disarms all points.
        pub fn clear(&self) {
            self.registry().0.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }

        /// Is the point still waiting to be passed?
        #[must_use]
        pub fn is_armed(&self, name: &str) -> bool {
            self.registry().0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(name)
        }

        /// Passes a point of this set. Errors: what the armed action asks for.
        ///
        /// # Panics
        /// When the point is armed with `panic`.
        #[expect(clippy::panic, reason = "a test asked for it")]
        pub async fn point(&self, name: &'static str) -> Result<(), Injected> {
            match self.registry().take(name) {
                None => Ok(()),
                Some(Arm::Delay { seconds }) => {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    Ok(())
                }
                Some(Arm::Panic) => panic!("injected panic at {name}"),
                Some(Arm::Kill) => std::process::abort(),
                Some(Arm::Error) => Err(Injected::Error),
                Some(Arm::Disconnect) => Err(Injected::Disconnect),
            }
        }

        /// Passes the point `decide:<aggregate_id>`. The rules can't wait or fail, so it can only panic.
        ///
        /// # Panics
        /// When the point is armed, whatever with.
        pub(crate) fn decide(&self, aggregate_id: &str) {
            assert!(
                self.registry().take(&format!("decide:{aggregate_id}")).is_none(),
                "injected panic in the rules for {aggregate_id}"
            );
        }
    }
}
