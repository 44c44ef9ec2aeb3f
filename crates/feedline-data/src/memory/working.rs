//! The memory of one sample in preparation.
//!
//! In: requests for bytes. Out: grants of the [`Budget`], at once or after a wait. Dropping it returns them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_memory::MutexGuard;

use super::budget::{Account, Budget, Patience, Ticket};
use super::{Cancel, Cancelled, NoMemory};

/// A request for less is granted this much where memory is plenty, so that further requests need no lock.
const MIN_GRANT: u64 = 64 << 10;
/// Interval at which a waiting sample checks for cancellation. Also how long a sample waits that is not due.
const CANCEL_POLL: Duration = Duration::from_millis(50);

/// The memory of one sample in preparation. Returned when dropped.
///
/// A sample that needs no memory does not take the lock. A small one takes it twice: its first grant covers its later requests.
#[derive(Debug)]
pub struct Working {
    budget: Arc<Budget>,
    /// The number is 0 until the sample requests memory.
    ticket: Ticket,
    patience: Patience,
    granted: u64,
    /// The used part of the grant.
    consumed: u64,
}

impl Working {
    /// A sample that holds nothing yet.
    pub(super) fn new(budget: Arc<Budget>, ticket: Ticket, patience: Patience) -> Self {
        Self { budget, ticket, patience, granted: 0, consumed: 0 }
    }

    /// Takes `bytes` more: from the grant, from free memory, or by waiting if the sample holds nothing yet. Returns how long it
    /// waited.
    pub(crate) fn reserve(&mut self, bytes: u64, cancel: &Cancel) -> Result<Duration, NoMemory> {
        let needed = self.consumed.saturating_add(bytes);
        if needed <= self.granted {
            self.consumed = needed;
            return Ok(Duration::ZERO);
        }
        let budget = Arc::clone(&self.budget);
        let (mut account, limit) = (budget.account.lock(), budget.limit());
        self.register(&mut account);
        let missing = needed - self.granted;
        if self.patience == Patience::None && !account.has_spare(self.ticket, missing, limit) {
            return Err(NoMemory::NotNow { bytes: needed });
        }
        // A sample that holds memory must not wait: two such samples could wait for each other. It gives up and starts again
        // with more.
        if self.granted > 0 && !account.may_grant(self.ticket, missing, limit) {
            return Err(NoMemory::NotNow { bytes: needed });
        }
        // The lock is still held. Otherwise another sample could take the free memory, and this one would wait while holding some.
        let rounded = missing.max(MIN_GRANT);
        let bytes = if account.has_spare(self.ticket, rounded, limit) { rounded } else { missing };
        let waited = self.grant_from(&budget, account, bytes, cancel)?;
        self.consumed = needed;
        Ok(waited)
    }

    /// Waits until `bytes` more may be used, for [`Working::reserve`] to take. Returns how long it waited.
    pub(crate) fn grant(&mut self, bytes: u64, cancel: &Cancel) -> Result<Duration, NoMemory> {
        cancel.check()?;
        if bytes == 0 {
            return Ok(Duration::ZERO);
        }
        let budget = Arc::clone(&self.budget);
        let mut account = budget.account.lock();
        self.register(&mut account);
        self.grant_from(&budget, account, bytes, cancel)
    }

    /// Takes a place among the samples that hold memory or wait for it.
    fn register(&mut self, account: &mut Account) {
        if self.ticket.number == 0 {
            account.tickets += 1;
            self.ticket.number = account.tickets;
            account.active.insert(self.ticket, false);
        }
    }

    fn grant_from(
        &mut self,
        budget: &Budget,
        mut account: MutexGuard<'_, Account>,
        bytes: u64,
        cancel: &Cancel,
    ) -> Result<Duration, NoMemory> {
        cancel.check()?;
        if bytes > budget.machine_memory {
            return Err(NoMemory::TooLarge { bytes, memory: budget.machine_memory });
        }
        let mut since = None;
        while !account.may_grant(self.ticket, bytes, budget.limit()) {
            if cancel.is_cancelled() {
                account.set_waiting(self.ticket, false);
                return Err(Cancelled.into());
            }
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            if waited >= CANCEL_POLL && !account.is_due(self.ticket.batch) {
                account.set_waiting(self.ticket, false);
                return Err(NoMemory::NotNow { bytes: self.granted + bytes });
            }
            if !account.set_waiting(self.ticket, true) {
                // Another waiting sample may now be the one that runs alone.
                budget.released.notify_all();
            }
            // With a time limit, because nothing notifies when the token is cancelled or when the limit of a shared budget
            // changes.
            account.waiting += 1;
            budget.released.wait_for(&mut account, CANCEL_POLL);
            account.waiting -= 1;
        }
        account.take(bytes);
        account.set_waiting(self.ticket, false);
        self.granted += bytes;
        Ok(since.map(|since| since.elapsed()).unwrap_or_default())
    }

    /// Ends the preparation. `kept` bytes of the grant stay in use and belong to the batch.
    pub(crate) fn end_keeping(mut self, kept: u64) {
        // Kept bytes leave the grant but stay in `used`. If more is kept than was granted, the rest is added. `Drop` then
        // returns only what is left of the grant.
        let missing = kept.saturating_sub(self.granted);
        self.granted = self.granted.saturating_sub(kept);
        if missing > 0 {
            self.budget.account.lock().take(missing);
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        // Without a place it holds nothing.
        if self.ticket.number == 0 {
            return;
        }
        let mut account = self.budget.account.lock();
        account.active.remove(&self.ticket);
        account.used -= self.granted;
        self.budget.wake(account);
    }
}
