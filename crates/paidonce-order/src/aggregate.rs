//! The cqrs-es adapter: `handle` and `apply` over [`crate::decide`] and [`crate::order`].
