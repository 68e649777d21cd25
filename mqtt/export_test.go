package mqtt

import "time"

// LinkTimes returns three times at the minimum link rate of the options: the time to send the data in the kernel's
// buffer, the write timeout, and the time to send the largest message.
func LinkTimes(o Options) (held, write, message time.Duration) {
	o = o.withDefaults()
	held = time.Duration(2*o.sendBufferBytes()) * time.Second / time.Duration(o.MinLinkRate)
	return held, o.WriteTimeout, maxMessageSendTime(o.MinLinkRate)
}
