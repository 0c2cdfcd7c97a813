-- Calls to the platforms are effects, claimed by their kind: a lane of its own for every refund would make as many queues
-- as there are open refunds.

-- Serves claiming of channel calls, and the time of the next one.
CREATE INDEX t_effect_call_due_idx ON t_effect (kind, due_at) WHERE kind <> 'deliver' AND state IN ('pending', 'leased');
-- Serves the breaker of automatic refunds: what was asked for within the last hour.
CREATE INDEX events_refund_requested_idx ON events (recorded_at) WHERE event_type = 'RefundRequested';
