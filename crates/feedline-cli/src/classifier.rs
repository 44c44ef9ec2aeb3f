//! A small classifier: one hidden layer, trained by stochastic gradient descent with momentum.
//!
//! In: batches of float tensors and their labels. Out: loss and accuracy. It gives the demo a consumer with a real training step,
//! and has no other use.

use feedline_order::random::{mix, unit};

const HIDDEN: usize = 48;
const LEARNING_RATE: f32 = 0.03;
const MOMENTUM: f32 = 0.9;
/// Inputs are multiplied by this, so that one learning rate suits both layers.
const INPUT_SCALE: f32 = 1.0 / 16.0;
/// Weights start uniformly in +-sqrt(6 / inputs) (He et al., 2015).
const INIT_SCALE: f32 = 6.0;
/// Partial sums of a dot product, so that the compiler can use vectors.
const LANES: usize = 8;

/// The classifier.
#[derive(Debug)]
pub(crate) struct Classifier {
    hidden: Layer,
    output: Layer,
}

/// The results of some samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Score {
    samples: u64,
    correct: u64,
    loss: f64,
}

impl Score {
    /// Number of samples.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Mean loss.
    pub(crate) fn loss(&self) -> f64 {
        self.loss / self.samples.max(1) as f64
    }

    /// Fraction of samples that were classified correctly.
    pub(crate) fn accuracy(&self) -> f64 {
        self.correct as f64 / self.samples.max(1) as f64
    }

    /// Adds the results of other samples.
    pub(crate) fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.correct += other.correct;
        self.loss += other.loss;
    }
}

impl Classifier {
    /// A classifier for samples of `inputs` numbers, in `classes` classes.
    pub(crate) fn new(inputs: usize, classes: usize) -> Self {
        Self { hidden: Layer::new(inputs, HIDDEN, 1), output: Layer::new(HIDDEN, classes, 2) }
    }

    /// One training step. `images` contains one sample per label, one after the other.
    pub(crate) fn train(&mut self, images: &[f32], labels: &[usize]) -> Score {
        let mut score = Score::default();
        for (image, &label) in self.samples(images).zip(labels) {
            // Backpropagation for a single sample. The gradients of the batch add up in the layers.
            let (hidden, probabilities) = self.forward(&image);
            score.add(score_of(&probabilities, label));
            let mut error = probabilities;
            // The gradient of cross-entropy after softmax: probabilities minus the one-hot label.
            error[label] -= 1.0;
            let mut hidden_error = self.output.back(&error, &hidden);
            // The derivative of ReLU: 1 for positive activations, otherwise 0.
            hidden_error.iter_mut().zip(&hidden).for_each(|(error, value)| *error *= f32::from(*value > 0.0));
            self.hidden.accumulate(&hidden_error, &image);
            self.output.accumulate(&error, &hidden);
        }
        self.hidden.step(labels.len());
        self.output.step(labels.len());
        score
    }

    /// Classifies without learning.
    pub(crate) fn score(&self, images: &[f32], labels: &[usize]) -> Score {
        let mut score = Score::default();
        for (image, &label) in self.samples(images).zip(labels) {
            score.add(score_of(&self.forward(&image).1, label));
        }
        score
    }

    fn samples<'a>(&self, images: &'a [f32]) -> impl Iterator<Item = Vec<f32>> + use<'a> {
        images.chunks_exact(self.hidden.inputs).map(|image| image.iter().map(|value| value * INPUT_SCALE).collect())
    }

    fn forward(&self, image: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let mut hidden = self.hidden.forward(image);
        for value in &mut hidden {
            *value = value.max(0.0);
        }
        let mut probabilities = self.output.forward(&hidden);
        let largest = probabilities.iter().copied().fold(f32::MIN, f32::max);
        for value in &mut probabilities {
            // Softmax. Subtracting the largest value avoids overflow, and does not change the result.
            *value = (*value - largest).exp();
        }
        let sum: f32 = probabilities.iter().sum();
        for value in &mut probabilities {
            *value /= sum;
        }
        (hidden, probabilities)
    }
}

fn score_of(probabilities: &[f32], label: usize) -> Score {
    let is_best = probabilities.iter().all(|value| *value <= probabilities[label]);
    // Cross-entropy loss. The limit keeps the logarithm finite.
    Score { samples: 1, correct: u64::from(is_best), loss: f64::from(-probabilities[label].max(1e-12).ln()) }
}

#[derive(Debug)]
struct Layer {
    inputs: usize,
    /// For each output its weights, then its bias.
    weights: Vec<f32>,
    gradient: Vec<f32>,
    velocity: Vec<f32>,
}

impl Layer {
    fn new(inputs: usize, outputs: usize, seed: u64) -> Self {
        // He initialisation keeps the variance of the activations about the same from layer to layer.
        let bound = (INIT_SCALE / inputs as f32).sqrt();
        let draw = |number: usize| (2.0 * unit(mix(mix(seed) ^ number as u64)) - 1.0) as f32 * bound;
        let size = (inputs + 1) * outputs;
        let weights =
            // Biases start at zero.
            (0..size).map(|number| if number % (inputs + 1) == inputs { 0.0 } else { draw(number) }).collect();
        Self { inputs, weights, gradient: vec![0.0; size], velocity: vec![0.0; size] }
    }

    fn forward(&self, input: &[f32]) -> Vec<f32> {
        self.weights
            .chunks_exact(self.inputs + 1)
            .map(|row| dot(&row[..self.inputs], input) + row[self.inputs])
            .collect()
    }

    /// The error of the inputs, from that of the outputs.
    fn back(&self, error: &[f32], input: &[f32]) -> Vec<f32> {
        let mut back = vec![0.0; input.len()];
        for (row, error) in self.weights.chunks_exact(self.inputs + 1).zip(error) {
            // `zip` ends before the bias, which has no input.
            back.iter_mut().zip(row).for_each(|(sum, weight)| *sum += weight * error);
        }
        back
    }

    fn accumulate(&mut self, error: &[f32], input: &[f32]) {
        for (row, error) in self.gradient.chunks_exact_mut(self.inputs + 1).zip(error) {
            row[..self.inputs].iter_mut().zip(input).for_each(|(sum, value)| *sum += value * error);
            row[self.inputs] += error;
        }
    }

    fn step(&mut self, samples: usize) {
        // Gradients are sums over the batch, so the rate is divided by its size.
        let rate = LEARNING_RATE / samples.max(1) as f32;
        for ((weight, gradient), velocity) in self.weights.iter_mut().zip(&mut self.gradient).zip(&mut self.velocity) {
            // Classical momentum (Polyak).
            *velocity = MOMENTUM * *velocity - rate * *gradient;
            *weight += *velocity;
            *gradient = 0.0;
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    // Separate sums per lane, because the compiler must not reorder floating-point additions by itself.
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns_what_can_be_learnt() {
        let sample = |number: u64| {
            let label = (number % 3) as usize;
            let noise = |place: u64| 4.0 * unit(mix(number * 1000 + place)) as f32 - 2.0;
            let values = (0..60).map(move |place| if place % 3 == label as u64 { 4.0 } else { 0.0 } + noise(place));
            (values.collect::<Vec<f32>>(), label)
        };
        let mut classifier = Classifier::new(60, 3);
        let before = (0..30).map(sample).map(|(image, label)| classifier.score(&image, &[label]).loss()).sum::<f64>();
        for step in 0..60 {
            let (images, labels): (Vec<_>, Vec<_>) = (step * 10..step * 10 + 10).map(sample).unzip();
            classifier.train(&images.concat(), &labels);
        }
        let mut after = Score::default();
        (10_000..10_100).map(sample).for_each(|(image, label)| after.add(classifier.score(&image, &[label])));
        assert!(after.accuracy() > 0.9, "{after:?}");
        assert!(after.loss() < before / 30.0, "{after:?}");
    }
}
