//! The results of the checks, as data and for people.

use std::fmt;

use serde::Serialize;

use super::content::Sides;
use super::subject::VerifyError;

/// The laws of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    /// Number of checked epochs.
    pub epochs: u64,
    /// Samples of each epoch that were prepared and compared.
    pub samples: u64,
    /// Samples that an epoch of this rank has.
    pub samples_of_epoch: u64,
    /// Each law, in the order of the checks.
    pub laws: Vec<LawReport>,
    /// Problems of the data that break no law.
    pub findings: Vec<Finding>,
    /// Whether no law is broken.
    pub passed: bool,
}

/// One law.
#[derive(Clone, Debug, Serialize)]
pub struct LawReport {
    /// Its number in ARCHITECTURE.md.
    pub law: u8,
    /// What was checked of it.
    pub name: &'static str,
    /// Whether it holds.
    pub verdict: Verdict,
    /// What was compared, or why nothing was.
    pub detail: String,
    /// The first place where it does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counterexample: Option<Box<Counterexample>>,
    /// How long that took.
    pub seconds: f64,
}

/// Whether a law holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It holds for everything that was checked.
    #[strum(to_string = "pass")]
    Pass,
    /// It does not.
    #[strum(to_string = "FAIL")]
    Fail,
    /// It does not apply to this plan.
    #[serde(rename = "not applicable")]
    #[strum(to_string = "not applicable")]
    NotApplicable,
}

/// A place where a law is broken.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counterexample {
    /// The number of the law.
    pub law: u8,
    /// What is wrong, in words.
    pub problem: String,
    /// The epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The position in the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The name of the sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<String>,
    /// The field that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The first byte of it that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte: Option<u64>,
    /// The value in the first configuration, or the expected value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The value in the second configuration, or the actual value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// The configurations that differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub configurations: Vec<String>,
    /// The op or source that causes the difference, if one was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub culprit: Option<String>,
}

impl Counterexample {
    /// A broken law, without a place.
    pub(super) fn of(law: u8, problem: impl Into<String>) -> Self {
        Self { law, problem: problem.into(), ..Self::default() }
    }

    /// Adds the bytes that differ.
    pub(super) fn differ_at(&mut self, Sides { byte, expected, found }: Sides) {
        self.byte = byte;
        (self.expected, self.found) = (Some(expected), Some(found));
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "law {}: {}", self.law, self.problem)?;
        let place = [
            self.epoch.map(|epoch| format!("epoch {epoch}")),
            self.position.map(|position| format!("position {position}")),
            self.sample.as_ref().map(|sample| format!("sample {sample:?}")),
            self.field.as_ref().map(|field| format!("field {field:?}")),
            self.byte.map(|byte| format!("byte {byte}")),
        ];
        let place: Vec<String> = place.into_iter().flatten().collect();
        if !place.is_empty() {
            write!(f, "\n  where: {}", place.join(", "))?;
        }
        // Two configurations label their own values. Otherwise the values are "expected" and "found".
        let words = match &self.configurations[..] {
            [one, other] => [&**one, &**other],
            several => {
                several.iter().try_for_each(|configuration| write!(f, "\n  with: {configuration}"))?;
                ["expected", "found"]
            }
        };
        for (word, value) in words.into_iter().zip([&self.expected, &self.found]) {
            match value {
                Some(value) => write!(f, "\n  {word}: {value}")?,
                None if self.configurations.len() == 2 => write!(f, "\n  with: {word}")?,
                None => {}
            }
        }
        match &self.culprit {
            Some(culprit) => write!(f, "\n  cause: {culprit}"),
            None => Ok(()),
        }
    }
}

/// A problem of the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the sample.
    pub sample: String,
    /// Where its bytes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad sample {:?}", self.sample)?;
        if let Some(path) = self.path.as_ref().filter(|path| **path != self.sample) {
            write!(f, " ({path:?})")?;
        }
        write!(f, ": {}", self.problem)
    }
}

/// The result of a check: what it compared, if its law holds.
pub(super) type Checked<T = String> = Result<T, Ended>;

/// Why a check ended without a pass.
#[derive(Debug)]
pub(super) enum Ended {
    Broken(Box<Counterexample>),
    /// The law does not apply to this plan, for this reason.
    NotApplicable(String),
    Failed(VerifyError),
}

impl From<Counterexample> for Ended {
    fn from(counterexample: Counterexample) -> Self {
        Self::Broken(Box::new(counterexample))
    }
}

impl From<VerifyError> for Ended {
    fn from(error: VerifyError) -> Self {
        Self::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counterexample_says_where_what_and_between_whom() {
        let text = Counterexample {
            law: 1,
            problem: "bytes differ".to_owned(),
            epoch: Some(0),
            position: Some(7),
            sample: Some("a.jpg".to_owned()),
            field: Some("image".to_owned()),
            byte: Some(12),
            expected: Some("3".to_owned()),
            found: Some("4".to_owned()),
            configurations: vec!["1 worker".to_owned(), "2 workers".to_owned()],
            culprit: Some("op 2, Map".to_owned()),
        }
        .to_string();
        let expected = "law 1: bytes differ\n  where: epoch 0, position 7, sample \"a.jpg\", field \"image\", byte 12\n  \
                        1 worker: 3\n  2 workers: 4\n  cause: op 2, Map";
        assert_eq!(text, expected);
    }

    #[test]
    fn without_configurations_it_says_what_is_expected_and_found() {
        let counterexample = Counterexample {
            law: 2,
            expected: Some("once".to_owned()),
            found: Some("twice".to_owned()),
            ..Default::default()
        };
        assert_eq!(counterexample.to_string(), "law 2: \n  expected: once\n  found: twice");
    }
}
