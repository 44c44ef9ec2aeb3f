//! Law 1 with a storage server: offloaded samples have the same bytes as samples prepared on this machine.

use feedline_data::plan::{Policy, Workers};

use super::compare::Pair;
use super::report::{Checked, Ended};
use super::stream::collect;
use super::subject::{Subject, Variant};
use super::values::References;

/// Compares every offload policy with no offloading.
pub(super) fn check(subject: &Subject<'_>, references: &References) -> Checked {
    if subject.plan.source().peer().is_none() {
        let why = "samples do not come from a storage server (feedline://)";
        return Err(Ended::NotApplicable(why.to_owned()));
    }
    if subject.plan.sequence().reservoir().is_some() {
        return Err(Ended::NotApplicable("samples that are read in sequence are prepared on this machine".to_owned()));
    }
    if let Some(who) = &subject.unstable {
        return Err(Ended::NotApplicable(format!("bytes change by themselves: {who}")));
    }
    let strict = &references.strict().0;
    let with = |policy: Policy| -> Variant {
        strict.with(&format!("offload {policy}"), |_, config| {
            (config.offload, config.cache) = (policy, None);
            config.num_workers = Workers::Count(2);
        })
    };
    let local = with(Policy::None);
    let expected = collect(subject, &local)?.0;
    let mut details = Vec::new();
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::None) {
        let variant = with(policy);
        let (found, snapshot) = collect(subject, &variant)?;
        if let Some(difference) = subject.differ(&expected, &found) {
            let problem = "an offloaded sample has other bytes than one that is prepared on this machine";
            let pair = Pair { law: 1, problem, expected: &local, found: &variant, fields: &expected.fields };
            return Err(subject.explain(&pair, difference)?.into());
        }
        let forms = snapshot.store.candidates.into_iter();
        // "raw" is a sample as stored, which the client prepares.
        let prepared: u64 = forms.filter(|(form, _)| form != "raw").map(|(_, samples)| samples).sum();
        details.push(format!("{policy} ({prepared} prepared there)"));
    }
    Ok(format!("the same bytes with offload {} as with none", details.join(", ")))
}
