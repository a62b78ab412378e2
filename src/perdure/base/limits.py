"""Every limit of perdure, with its unit in its name (R1). Nothing else in the code is unbounded on purpose."""

from __future__ import annotations

# Payloads
payload_bytes_max = 32 * 1024 * 1024
payload_depth_max = 64
bigint_bits_max = 1 << 16
error_message_chars_max = 8_192
error_traceback_chars_max = 16_384
note_chars_max = 8_192

# Names
run_id_chars_max = 256
name_chars_max = 200
tags_max = 64

# Runs
delay_s_max = 100 * 366 * 24 * 3600.0
positions_max = 10_000_000
tasks_live_max = 1_000_000
pump_callbacks_max = 10_000_000  # far below the time of a lease: meanwhile the worker does nothing else
suspensions_max = 1_000
moment_max_s = 253_402_300_799.0  # the last second of the year 9999: what lies behind it no calendar can show
crashes_without_progress_max = 10

# Steps
step_timeout_s = 600.0
step_retries_max = 1_000
unknown_outcomes_max = 3
probe_attempts_max = 5
backoff_base_s = 0.5
backoff_ceiling_s = 60.0
retry_after_ceiling_s = 24 * 3600.0
threads_max = 64
processes_max = 8

# Worker
lease_ttl_s = 30.0
lease_margin_share = 0.2
heartbeat_share = 0.25
dead_scan_s = 0.5
poll_s = 0.008
claim_runs_max = 256
active_runs_max = 2_000
idle_stay_s = 1.0
lazy_commit_s = 0.01
inline_commit_s_max = 0.001
grace_s = 30.0
batch_records_max = 4_096
batch_bytes_max = 8 * 1024 * 1024

# Store
listing_rows_max = 1_000
