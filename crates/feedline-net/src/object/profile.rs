//! Reads the files of the AWS command line: keys and region of a profile.
//!
//! In: the text of `credentials` and `config`. Out: the settings of one profile. `object_store` knows the environment and the roles
//! of machines, but not these files. Profiles that refer elsewhere (SSO, roles, other programs) are not supported.

use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

/// The default profile.
const DEFAULT: &str = "default";
/// The settings that are used, by their name in the files.
const SETTINGS: [(&str, AmazonS3ConfigKey); 5] = [
    ("aws_access_key_id", AmazonS3ConfigKey::AccessKeyId),
    ("aws_secret_access_key", AmazonS3ConfigKey::SecretAccessKey),
    ("aws_session_token", AmazonS3ConfigKey::Token),
    ("region", AmazonS3ConfigKey::Region),
    ("endpoint_url", AmazonS3ConfigKey::Endpoint),
];

/// Adds the settings of the current profile. The environment takes precedence. If it names keys or another way to get them, the
/// profile's keys are ignored.
pub(super) fn with_profile(mut builder: AmazonS3Builder) -> AmazonS3Builder {
    use AmazonS3ConfigKey as Key;
    let ways = [
        Key::AccessKeyId,
        Key::WebIdentityTokenFile,
        Key::ContainerCredentialsRelativeUri,
        Key::ContainerCredentialsFullUri,
    ];
    let is_set = |builder: &AmazonS3Builder, key: &Key| builder.get_config_value(key).is_some();
    // Keys from two places must not be mixed: an id from the environment does not fit a secret from a file.
    let has_keys = ways.iter().any(|key| is_set(&builder, key));
    let settings = from_files();
    for (name, key) in SETTINGS {
        let is_secret = name.starts_with("aws_");
        if let Some(value) = settings.get(name)
            && !is_set(&builder, &key)
            && !(is_secret && has_keys)
        {
            builder = builder.with_config(key, value);
        }
    }
    builder
}

fn from_files() -> HashMap<String, String> {
    let profile = env::var("AWS_PROFILE").unwrap_or_else(|_| DEFAULT.to_owned());
    let text = |variable: &str, name: &str| {
        let path = env::var_os(variable).map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".aws").join(name)));
        path.filter(|path| path.as_os_str() != OsStr::new("")).and_then(|path| fs::read_to_string(path).ok())
    };
    let config = text("AWS_CONFIG_FILE", "config").unwrap_or_default();
    let credentials = text("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
    // In `config` a section is `[profile name]`, except `[default]`. In `credentials` it is `[name]`.
    let title = if profile == DEFAULT { profile.clone() } else { format!("profile {profile}") };
    let mut settings = section(&config, &title);
    // As in the AWS tools, `credentials` overrides `config`.
    settings.extend(section(&credentials, &profile));
    settings
}

/// The settings below `[title]`. Indented ones belong to another setting.
fn section(text: &str, title: &str) -> HashMap<String, String> {
    let mut is_inside = false;
    let mut settings = HashMap::new();
    for line in text.lines().filter(|line| !line.starts_with(['#', ';', ' ', '\t'])) {
        if let Some(found) = line.trim().strip_prefix('[').and_then(|line| line.split(']').next()) {
            is_inside = found.trim() == title;
        } else if let Some((name, value)) = line.split_once('=').filter(|_| is_inside) {
            settings.insert(name.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_has_its_own_settings_and_no_others() {
        let text = "# keys\n[other]\nregion = nowhere\n[ default ]\naws_access_key_id=A\nAWS_Secret_Access_Key = b=c/d+ \n\
                    s3 =\n    region = indented\n;region = comment\n[last]\nregion = there\n";
        let expected = [("aws_access_key_id", "A"), ("aws_secret_access_key", "b=c/d+"), ("s3", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(section(text, "default"), HashMap::from(expected));
        assert!(section(text, "nothing").is_empty() && section("", "default").is_empty());
    }
}
