package mqtt

import "time"

// LinkTimes returns how long a link with these options takes, at its least
// rate, for what the kernel holds of ours; how long a write may take; and how
// long the link takes for the largest message.
func LinkTimes(o Options) (held, write, message time.Duration) {
	o = o.withDefaults()
	held = time.Duration(2*o.sendBufferBytes()) * time.Second / time.Duration(o.MinLinkRate)
	return held, o.WriteTimeout, maxMessageSendTime(o.MinLinkRate)
}
