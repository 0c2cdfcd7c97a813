//! The cqrs-es adapter: `handle` and `apply` over [`crate::decide`] and [`crate::apply`], and nothing more.

use cqrs_es::Aggregate;
use cqrs_es::event_sink::EventSink;

use crate::command::{OrderCommand, StrayCommand};
use crate::decide::decide;
use crate::error::OrderError;
use crate::event::{OrderEvent, StrayEvent};
use crate::ids::OrderNo;
use crate::order::Order;
use crate::stray::{Stray, decide_stray};

/// A command together with its order's number, which keys and messages need and which the state does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addressed {
    /// aggregate_id.
    pub order_no: OrderNo,
    /// What is asked.
    pub command: OrderCommand,
}

impl Aggregate for Order {
    const TYPE: &'static str = Self::TYPE_NAME;
    type Command = Addressed;
    type Event = OrderEvent;
    type Error = OrderError;
    type Services = ();

    async fn handle(
        &mut self,
        command: Self::Command,
        _service: &Self::Services,
        sink: &EventSink<Self>,
    ) -> Result<(), Self::Error> {
        for event in decide(&command.order_no, self, command.command)? {
            sink.write(event, self).await;
        }
        Ok(())
    }

    fn apply(&mut self, event: Self::Event) {
        Self::apply(self, &event);
    }
}

impl Aggregate for Stray {
    const TYPE: &'static str = Self::TYPE_NAME;
    type Command = StrayCommand;
    type Event = StrayEvent;
    type Error = OrderError;
    type Services = ();

    async fn handle(
        &mut self,
        command: Self::Command,
        _service: &Self::Services,
        sink: &EventSink<Self>,
    ) -> Result<(), Self::Error> {
        for event in decide_stray(self, command)? {
            sink.write(event, self).await;
        }
        Ok(())
    }

    fn apply(&mut self, event: Self::Event) {
        Self::apply(self, &event);
    }
}
