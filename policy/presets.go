package policy

import "time"

// SNSManaged is the policy of Amazon SNS for endpoints that AWS manages
// (Lambda, SQS, Firehose): 3 retries at once, 2 after 1 s, 10 that grow
// exponentially from 1 s to 20 s, 100,000 after 20 s; 100,015 retries in
// 2,000,042 s, which is 23 days; with its jitter at least half of that.
//
// Source: "Amazon SNS message delivery retries", Developer Guide; likewise
// SNSCustomer and SNSHTTP. What it calls total attempts are retries: the first
// attempt comes on top.
func SNSManaged() Policy {
	return Policy{
		MinDelay: time.Second, MaxDelay: 20 * time.Second, Backoff: Exponential,
		Retries: 100_015, NoDelayRetries: 3, MinDelayRetries: 2, MaxDelayRetries: 100_000,
	}
}

// SNSCustomer is the policy of Amazon SNS for endpoints that customers manage
// (SMTP, SMS, mobile push): 2 retries after 10 s, 10 that grow exponentially
// from 10 s to 10 min, 38 after 10 min; 50 retries in 23,853 s, which is 6.6 h;
// with its jitter at least 3.3 h.
func SNSCustomer() Policy {
	return Policy{
		MinDelay: 10 * time.Second, MaxDelay: 10 * time.Minute, Backoff: Exponential,
		Retries: 50, MinDelayRetries: 2, MaxDelayRetries: 38,
	}
}

// SNSHTTP is the default of Amazon SNS for HTTP/S endpoints: 3 retries after
// 20 s each, 60 s in total; with its jitter at least 30 s.
func SNSHTTP() Policy {
	return Policy{MinDelay: 20 * time.Second, MaxDelay: 20 * time.Second, Retries: 3}
}

// SDKStandard is the standard mode of the AWS SDKs: 2 retries (3 attempts) with full
// jitter under delays that double from 1 s and are capped at 20 s; 0 s to 3 s in total.
// The retry quota of that mode is a [Budget] with its defaults, except for the refill by
// time, which the SDKs do not have.
//
// Source: "Retry behavior", AWS SDKs and Tools Reference Guide.
func SDKStandard() Policy {
	return Policy{
		MinDelay: time.Second, MaxDelay: 20 * time.Second, Backoff: Doubling,
		Retries: 2, Jitter: FullJitter,
	}
}

// Exponential100ms is the example in the AWS documentation that waits for
// 2^retry * 100 ms, and for nothing before retry 0: nothing, 200 ms, 400 ms, 800 ms
// and so on, without jitter. The example leaves its two limits, the number of
// retries and the longest wait, to the caller. With 10 retries and 1 min, the
// last delay is 51.2 s and the total 102.2 s.
//
// Source: "Error retries and exponential backoff in AWS", AWS General Reference.
func Exponential100ms(retries int, maxWait time.Duration) Policy {
	return Policy{
		MinDelay: min(200*time.Millisecond, maxWait), MaxDelay: maxWait, Backoff: Doubling,
		Retries: retries, NoDelayRetries: min(1, retries), Jitter: NoJitter,
	}
}

// QLDB is the default of the driver for Amazon QLDB: 4 retries that double
// from 20 ms and are capped at 5 s, with equal jitter; 150 ms to 300 ms in total. In
// the driver's words: (0.5 + 0.5 U) * min(5000, 10 * 2^attempt) ms, where attempts
// count from 1.
//
// Source: "Understanding retry policy with the driver in Amazon QLDB".
func QLDB() Policy {
	return Policy{MinDelay: 20 * time.Millisecond, MaxDelay: 5 * time.Second, Backoff: Doubling, Retries: 4}
}

// Default is the policy of errand for jobs: 1 retry at once, 2 after 1 s, 24 that
// double from 1 s to 2,048 s and are capped at 1 h; 27 retries in 47,297 s, which
// is 13.1 h. Equal jitter shortens each delay by up to a half, so that a job is dead
// 6.6 h to 13.1 h after its first failure, mostly after about 10 h. The policy bridges
// a restart, a deployment and an outage of 6 hours. With fewer Retries it has the first
// of these delays.
func Default() Policy {
	return Policy{
		MinDelay: time.Second, MaxDelay: time.Hour, Backoff: Doubling,
		Retries: 27, NoDelayRetries: 1, MinDelayRetries: 2,
	}
}

// Retries is for who counts retries and does not think about delays: n of them, which
// double from 15 s and are capped at 1 h, with equal jitter. 5 take 4 to 8 min, 10 take
// 1.6 to 3.2 h.
func Retries(n int) Policy {
	return Policy{MinDelay: 15 * time.Second, MaxDelay: time.Hour, Backoff: Doubling, Retries: n}
}

// Webhook is for deliveries to endpoints of others over HTTP: 13 retries that double from
// 5 s to 5.7 h, and 8 after 8 h; 21 retries in 271,355 s, which is 75.4 h; with its
// jitter at least 37.7 h. Its first delay, 5 s, and its total before jitter, 75 h, are
// those of the example in the specification of Standard Webhooks, whose 9 retries are up
// to 24 h apart. Classes are those of [ByWebhookStatus].
//
// Source: "Deliverability and reliability", Standard Webhooks 1.0.0.
func Webhook() Policy {
	return Policy{
		MinDelay: 5 * time.Second, MaxDelay: 8 * time.Hour, Backoff: Doubling,
		Retries: 21, MaxDelayRetries: 8,
	}
}

// forever is as many retries as [ProfileQueue] allows.
const forever = 1_000_000

// Forever is for work on devices that are offline for long: 1 retry at once, 2
// after 1 s, then delays that double from 1 s up to maxDelay, and maxDelay
// between all others, 1,000,000 retries in all, which is as many as there can
// be. With a maxDelay of 1 h that is 57 to 114 years. A maxDelay under 1 s is the
// minimum too.
func Forever(maxDelay time.Duration) Policy {
	p := Policy{
		MinDelay: min(time.Second, maxDelay), MaxDelay: maxDelay, Backoff: Doubling,
		Retries: forever, NoDelayRetries: 1, MinDelayRetries: 2,
	}
	doublings := 1
	for d := p.MinDelay; d > 0 && d <= maxDelay/2; d *= 2 {
		doublings++
	}
	p.MaxDelayRetries = p.Retries - p.NoDelayRetries - p.MinDelayRetries - doublings
	return p
}
