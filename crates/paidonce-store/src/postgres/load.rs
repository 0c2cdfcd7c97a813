//! The writer's side.
